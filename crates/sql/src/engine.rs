//! The engine: how a lock is taken, waited for and undone in a lock table.

use crate::lease::SqlLease;
use crate::row::{Standing, micros};
use crate::sqlite::{SqliteConfig, Store, foreign_wait};
use async_trait::async_trait;
use fencelock_core::{
    Admin, Attempt, Claim, DistributedLock, Error, ErrorKind, Grant, Guarantees, HolderInfo, LockName, Obstacle,
    Polling, Result,
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
    store: Arc<Store>,
    polling: Polling,
}

/// What a look at the table means for a claim.
enum Verdict {
    /// Nothing stands in the way that could be seen.
    Open,
    /// Another holds it.
    Held(Attempt),
    /// The claim's id was voided, released, or has expired.
    Dead { voided: bool },
}

impl SqlLock {
    /// Opens the SQLite database of `config`, creates or verifies the tables,
    /// and probes what can be guaranteed there.
    ///
    /// # Errors
    /// `InvalidConfig` if a setting, the path or the shape of a table is wrong,
    /// `Refused` if another version of the layout is in use, `Denied` without
    /// permission, `Unavailable` if the file stayed locked or the disk failed.
    ///
    /// # Cancel safety
    /// Dropping the future may leave the tables created.
    pub async fn sqlite(config: SqliteConfig) -> Result<Arc<Self>> {
        let store = Store::open(config).await?;
        Ok(Arc::new(Self { store: Arc::new(store), polling: Polling::new() }))
    }

    /// One statement sent; a look at what was in the way if it took nothing.
    async fn attempt(&self, claim: &Claim) -> Result<Attempt> {
        // One that met a holder before looks first, so that waiters do not queue for the write lock.
        if matches!(claim.obstacle(), Obstacle::Held(_)) {
            match self.look(claim).await? {
                Verdict::Open => {}
                Verdict::Held(attempt) => return Ok(attempt),
                Verdict::Dead { .. } => return Err(abandoned()),
            }
        }
        for _ in 0..TRIES {
            if let Some((sent_at, token)) = self.store.acquire(claim).await? {
                let hold = self.polling.hold(claim.name());
                let lease = SqlLease::new(Arc::clone(&self.store), claim.clone(), token, hold);
                return Ok(Attempt::Granted(Grant::new(claim, lease, sent_at, token)));
            }
            match self.look(claim).await? {
                Verdict::Open => {}
                Verdict::Held(attempt) => return Ok(attempt),
                Verdict::Dead { .. } => return Err(abandoned()),
            }
        }
        Ok(Attempt::contended(Some(Duration::ZERO), None))
    }

    async fn look(&self, claim: &Claim) -> Result<Verdict> {
        let seen = self.store.look(claim.name(), claim.id(), claim.clock()).await?;
        if seen.voided {
            return Ok(Verdict::Dead { voided: true });
        }
        let Some(row) = seen.row else { return Ok(Verdict::Open) };
        let standing = row.standing(self.store.frame(), seen.now);
        if row.is_of(claim.id()) {
            let dead = standing == Standing::Free;
            return Ok(if dead { Verdict::Dead { voided: false } } else { Verdict::Open });
        }
        let left = match standing {
            Standing::Free => return Ok(Verdict::Open),
            Standing::Held(left) => left,
            Standing::Foreign => {
                self.store.restamp(claim.name(), &row, claim.clock()).await?;
                micros(foreign_wait(row.ttl))
            }
        };
        Ok(Verdict::Held(Attempt::contended(Some(left), Some(row.holder.into()))))
    }

    /// Whether the claim died of its own request that nobody saw answered, and not by an undo.
    async fn outlived_its_request(&self, claim: &Claim) -> bool {
        claim.is_unanswered() && matches!(self.look(claim).await, Ok(Verdict::Dead { voided: false }))
    }
}

fn abandoned() -> Error {
    Error::new(ErrorKind::Lost, "this claim was abandoned, released or has expired; its id is dead")
        .with_operation("acquire")
}

#[async_trait]
impl DistributedLock for SqlLock {
    fn guarantees(&self) -> Arc<Guarantees> {
        self.store.guarantees()
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt> {
        self.attempt(claim).await.map_err(|e| e.with_engine("sqlite").with_name(claim.name()))
    }

    async fn acquire(&self, claim: &Claim) -> Result<Grant> {
        let mut claim = claim.clone();
        loop {
            match self.polling.acquire(self, self.store.hints(), &claim).await {
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
        self.store.void(claim).await?;
        self.store.free(claim, "abandon").await?;
        Ok(())
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<HolderInfo>> {
        self.store.inspect(name).await
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }
}

#[async_trait]
impl Admin for SqlLock {
    async fn list(&self, prefix: &str) -> Result<Vec<(LockName, HolderInfo)>> {
        self.store.list(prefix).await
    }

    async fn force_release(&self, name: &LockName) -> Result<bool> {
        self.store.force_release(name).await
    }
}

impl fmt::Debug for SqlLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlLock").field("store", &self.store).field("polling", &self.polling).finish()
    }
}
