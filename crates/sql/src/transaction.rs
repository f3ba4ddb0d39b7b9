//! Locks inside a transaction of the caller's own.

use async_trait::async_trait;
use fencelock_core::{Error, ErrorKind, FencingToken, LockName, Result};
use sqlx::{Database, Transaction};
use std::time::{Duration, Instant};

/// A lock that lasts as long as a transaction of the caller's, and commits with its data.
///
/// ```no_run
/// # #[cfg(feature = "postgres")]
/// # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// use fencelock_sql::postgres::PostgresConfig;
/// use fencelock_sql::{AcquireIn, SqlLock};
///
/// let locks = SqlLock::postgres(PostgresConfig::new("localhost", "app")).await?;
/// let mut transaction = pool.begin().await?;
/// if let Some(hold) = locks.acquire_in(&mut transaction, "orders/1001").await? {
///     let sql = "UPDATE orders SET state = 'paid', token = $1 WHERE id = 1001";
///     sqlx::query(sql).bind(hold.token().as_i64()).execute(&mut *transaction).await?;
///     transaction.commit().await?;
/// }
/// # Ok(())
/// # }
/// ```
///
/// The row of the lock is *updated* in the transaction, so that nobody else has
/// the lock until it has ended, whatever becomes of clocks and connections: no
/// lease, nothing to renew, nothing to lose before the commit. The new token
/// commits with the data; a rollback takes it back. One round trip, and a
/// transaction pooler in between does no harm.
///
/// Rules for the caller:
/// - The lock table is in the same database as the data, and the transaction is
///   at the server that the engine is connected to.
/// - It is the transaction's *first* statement. What was read before it may be
///   older than what the last holder wrote.
/// - Another transaction that has the lock is waited for by the database, under
///   its own time-outs (`lock_timeout`, `innodb_lock_wait_timeout`, SQLite's busy
///   time-out): set them as it suits you. Deadlocks are yours to retry, as ever.
/// - Leased acquires of the name meet the row's lock and are contended until the
///   end of the transaction, so keep it short.
/// - On SQLite begin the transaction with `BEGIN IMMEDIATE`. While it is open
///   *nobody* can write to the file: every other lock in it waits too. One that
///   lasts over ten seconds (a third of the default ttl) is warned about.
#[async_trait]
pub trait AcquireIn<DB: Database> {
    /// Takes the lock `name` until the transaction ends; `None` if somebody has it on a lease.
    ///
    /// After `None`, and after any error, end the transaction: MySQL keeps the
    /// row locked until then, and the holder's renewals would wait for it.
    ///
    /// # Errors
    /// `InvalidName`; `Unsupported` if the engine is of another database;
    /// `Unavailable` if another transaction was in the way for too long or no
    /// answer came; otherwise what the database failed with.
    ///
    /// # Cancel safety
    /// Dropping the future leaves it open whether the lock was taken: end the transaction.
    async fn acquire_in(&self, transaction: &mut Transaction<'_, DB>, name: &str) -> Result<Option<TransactionHold>>;
}

/// A lock held by a transaction of the caller's.
///
/// # Drop
/// Frees nothing: the end of the transaction does.
#[derive(Debug)]
#[must_use = "its token belongs with what is written"]
pub struct TransactionHold {
    token: FencingToken,
    /// Since when, where others are kept waiting who want other locks.
    warns: Option<(LockName, Instant)>,
}

/// A third of the default ttl: holders of other locks in the file could not renew for so long.
const LONG: Duration = Duration::from_secs(10);

impl TransactionHold {
    pub(crate) fn new(token: i64, warns: Option<LockName>) -> Self {
        let token = FencingToken::new(u64::try_from(token).unwrap_or(0));
        Self { token, warns: warns.map(|name| (name, Instant::now())) }
    }

    /// The fencing token of this hold. It counts once the transaction has committed.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.token
    }
}

impl Drop for TransactionHold {
    fn drop(&mut self) {
        if let Some((name, since)) = &self.warns
            && since.elapsed() > LONG
        {
            tracing::warn!(target: "fencelock", event = "long_transaction", %name, held_ms = since.elapsed().as_millis(),
                "a transaction blocked every writer of the lock file for longer than a third of the default ttl");
        }
    }
}

#[allow(dead_code, reason = "with one database alone there is no other")]
pub(crate) fn other_database(engine: &'static str) -> Error {
    let message = format!("the transaction is not one of this engine's database, {engine}");
    Error::new(ErrorKind::Unsupported, message).with_operation("acquire_in")
}
