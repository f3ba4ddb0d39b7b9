//! The engine: how a lock is taken, waited for and undone in a lock table.

use crate::lease::SqlLease;
use crate::table::{LockTable, Outcome, Place, check_idle};
use crate::waiter::Waiter;
use async_trait::async_trait;
use fencelock_core::{
    Admin, Attempt, Claim, DistributedLock, Error, ErrorKind, FencingToken, Grant, Guarantees, HolderInfo, LockName,
    Moment, Obstacle, Polling, Result,
};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How often a try goes on when the lock is freed between its statement and its look.
const TRIES: u32 = 3;

/// Locks in a SQL table.
///
/// Made for one database, and driven by a
/// [`LockClient`](fencelock_core::LockClient). The crate's own page describes
/// the table, the protocol and its limits.
///
/// # Drop
/// The connections close when the engine and the last lease are gone. What is
/// held then runs out.
pub struct SqlLock {
    pub(crate) table: Arc<dyn LockTable>,
    pub(crate) polling: Polling,
    kind: Kind,
}

/// The databases there are, as far as a transaction of the caller's own has to fit.
#[derive(Clone)]
pub(crate) enum Kind {
    #[cfg(feature = "sqlite")]
    Sqlite(Arc<crate::sqlite::Store>),
    #[cfg(feature = "postgres")]
    Postgres(Arc<crate::postgres::Store>),
    #[cfg(feature = "mysql")]
    MySql(Arc<crate::mysql::Store>),
}

impl SqlLock {
    /// Opens the SQLite database of `config`, creates or verifies the tables,
    /// and probes what can be guaranteed there.
    ///
    /// # Errors
    /// `InvalidConfig` if a setting, the path or the shape of a table is wrong,
    /// `Refused` if another version of the layout is in use, `Denied` without
    /// permission, `Unavailable` if the file stayed locked or the disk failed, or
    /// outside a tokio runtime. What cannot be promised there is no error but in
    /// the [guarantees](DistributedLock::guarantees): ask them, or connect through
    /// the facade, which does.
    ///
    /// # Cancel safety
    /// Dropping the future may leave the tables created.
    #[cfg(feature = "sqlite")]
    pub async fn sqlite(config: crate::sqlite::SqliteConfig) -> Result<Arc<Self>> {
        fencelock_core::check_runtime()?;
        let store = Arc::new(crate::sqlite::Store::open(config).await?);
        Ok(Self::on(Arc::<crate::sqlite::Store>::clone(&store), Kind::Sqlite(store)))
    }

    /// Connects to the PostgreSQL of `config`, creates or verifies the tables,
    /// and probes what can be guaranteed there.
    ///
    /// # Errors
    /// `InvalidConfig` if a setting or the shape of a table is wrong, or if there
    /// are no tables and they may not be made (the error has the statements that
    /// make them), `Refused` if another version of the layout is in use, `Denied`
    /// without permission, `Unavailable` if the server did not answer, or outside
    /// a tokio runtime.
    ///
    /// # Cancel safety
    /// Dropping the future may leave the tables created.
    #[cfg(feature = "postgres")]
    pub async fn postgres(config: crate::postgres::PostgresConfig) -> Result<Arc<Self>> {
        fencelock_core::check_runtime()?;
        let store = crate::postgres::Store::open(config).await?;
        Ok(Self::on(Arc::<crate::postgres::Store>::clone(&store), Kind::Postgres(store)))
    }

    /// Connects to the MySQL or MariaDB of `config`, creates or verifies the
    /// tables, and probes what can be guaranteed there.
    ///
    /// # Errors
    /// As [`postgres`](Self::postgres).
    ///
    /// # Cancel safety
    /// Dropping the future may leave the tables created.
    #[cfg(feature = "mysql")]
    pub async fn mysql(config: crate::mysql::MySqlConfig) -> Result<Arc<Self>> {
        fencelock_core::check_runtime()?;
        let store = crate::mysql::Store::open(config).await?;
        Ok(Self::on(Arc::<crate::mysql::Store>::clone(&store), Kind::MySql(store)))
    }

    fn on(table: Arc<dyn LockTable>, kind: Kind) -> Arc<Self> {
        let polling = Polling::new();
        table.heeds(&polling);
        Arc::new(Self { table, polling, kind })
    }

    pub(crate) fn engine_name(&self) -> &'static str {
        self.table.engine()
    }

    pub(crate) fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Drops the rows of locks that nobody has held for `idle`, and says how many.
    ///
    /// A row holds the last token of its name, so the largest of those that go is
    /// first kept in a row of its own (the floor, under the empty name), above
    /// which new names start: no token is given out twice. It may run beside
    /// clients, and takes as long as one request may last on top of its statements; on
    /// SQLite the file is left to others between two of them for as long as one takes.
    ///
    /// # Errors
    /// `InvalidConfig` if `idle` is under a minute; otherwise what the database failed with.
    ///
    /// # Cancel safety
    /// Dropping the future leaves rows for the next time.
    pub async fn purge(&self, idle: Duration) -> Result<u64> {
        check_idle(idle)?;
        self.table.purge(idle).await.map_err(|e| e.with_engine(self.table.engine()).with_operation("purge"))
    }

    /// One statement sent, where nothing is in the way. One that met a holder at the server before `looks` first, so
    /// that waiters write nothing and do not queue to write, unless the table does both in one.
    pub(crate) async fn attempt(
        &self,
        claim: &Claim,
        waits: bool,
        place: Option<&Arc<dyn Place>>,
        mut looks: bool,
    ) -> Result<Attempt> {
        looks &= !(waits && self.table.looks_as_it_acquires());
        for _ in 0..TRIES {
            if std::mem::take(&mut looks) {
                match self.table.look(claim).await? {
                    Outcome::Held(attempt) => return Ok(attempt),
                    Outcome::Dead { .. } => return Err(abandoned()),
                    Outcome::Open | Outcome::Granted(..) => {}
                }
            }
            match self.table.acquire(claim, waits).await? {
                Outcome::Granted(sent_at, token) => {
                    return Ok(Attempt::Granted(self.granted(claim, place, sent_at, token)));
                }
                Outcome::Held(attempt) => return Ok(attempt),
                Outcome::Dead { .. } => return Err(abandoned()),
                Outcome::Open => {}
            }
        }
        Ok(Attempt::contended(Some(Duration::ZERO), None))
    }

    /// The claim's hold, counted from `sent_at`.
    pub(crate) fn granted(
        &self,
        claim: &Claim,
        place: Option<&Arc<dyn Place>>,
        sent_at: Moment,
        token: FencingToken,
    ) -> Grant {
        let place = place.filter(|place| place.holds(token));
        let hold = self.polling.hold(claim.name());
        let lease = SqlLease::new(Arc::clone(&self.table), claim.clone(), token, hold, place.cloned());
        Grant::new(claim, lease, sent_at, token).with_reserved(claim.reserve())
    }

    /// Whether the claim died of its own request that nobody saw answered, and not by an undo.
    async fn outlived_its_request(&self, claim: &Claim) -> bool {
        claim.is_unanswered() && matches!(self.table.look(claim).await, Ok(Outcome::Dead { voided: false }))
    }
}

fn abandoned() -> Error {
    Error::new(ErrorKind::Lost, "this claim was abandoned, released or has expired; its id is dead")
        .with_operation("acquire")
}

#[async_trait]
impl DistributedLock for SqlLock {
    fn guarantees(&self) -> Arc<Guarantees> {
        self.table.guarantees()
    }

    async fn probe(&self) -> Result<Arc<Guarantees>> {
        self.table.probe().await.map_err(|e| e.with_engine(self.table.engine()))
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt> {
        let outcome = self.attempt(claim, false, None, matches!(claim.obstacle(), Obstacle::Held(_))).await;
        // A copy of the request that had no answer may still take it.
        let outcome = match outcome {
            Ok(contended @ Attempt::Contended { .. }) if claim.is_unanswered() => {
                self.abandon(claim).await.map(|()| contended)
            }
            outcome => outcome,
        };
        outcome.map_err(|e| e.with_engine(self.table.engine()).with_name(claim.name()))
    }

    async fn acquire(&self, claim: &Claim) -> Result<Grant> {
        let mut claim = claim.clone();
        loop {
            match Waiter::new(self, &claim).acquire().await {
                Err(e) if e.kind() == ErrorKind::Lost && self.outlived_its_request(&claim).await => {
                    claim = claim.next_attempt()?;
                }
                outcome => return outcome,
            }
        }
    }

    async fn abandon(&self, claim: &Claim) -> Result<()> {
        if !claim.was_sent() {
            return Ok(());
        }
        // Void first: freed first, a late acquire of this id could take the lock in between.
        let voided = self.table.void(claim).await;
        // Where it is not known to be void it is freed all the same, and once more when this is asked for again.
        self.table.free(claim, None, "abandon").await?;
        voided
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<HolderInfo>> {
        self.table.inspect(name).await
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }
}

#[async_trait]
impl Admin for SqlLock {
    async fn list(&self, prefix: &str) -> Result<Vec<(LockName, HolderInfo)>> {
        self.table.list(prefix).await
    }

    async fn force_release(&self, name: &LockName) -> Result<bool> {
        self.table.force_release(name, (i64::MIN, i64::MAX)).await
    }

    async fn force_release_if(&self, name: &LockName, token: FencingToken) -> Result<bool> {
        match i64::try_from(token.get()) {
            Ok(token) => self.table.force_release(name, (token, token)).await,
            // No row has such a one.
            Err(_) => Ok(false),
        }
    }
}

impl fmt::Debug for SqlLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlLock").field("table", &self.table).field("polling", &self.polling).finish()
    }
}
