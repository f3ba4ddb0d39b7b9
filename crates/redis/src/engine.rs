//! The engine: how a lock is taken, waited for and undone in Redis.

use crate::config::RedisConfig;
use crate::failure::Failure;
use crate::keys::NameKeys;
use crate::lease::RedisLease;
use crate::mail::Place;
use crate::store::{Answer, Store};
use crate::waiting::Waiting;
use async_trait::async_trait;
use fencelock_core::group::Renewals;
use fencelock_core::{
    Admin, Attempt, Claim, DistributedLock, Error, ErrorKind, FencingToken, Grant, Guarantees, HolderInfo, LockName,
    Moment, Polling, Result, check_runtime,
};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Redis counts whole milliseconds, and expires on the tick.
const MARGIN: Duration = Duration::from_millis(2);

/// Locks in Redis.
///
/// Driven by a [`LockClient`](fencelock_core::LockClient). The crate's own page
/// describes the keys, the protocol and its limits.
///
/// # Drop
/// The connections close when the engine and the last lease are gone. What is
/// held then runs out.
pub struct RedisLock {
    pub(crate) shared: Arc<Shared>,
    polling: Polling,
}

/// What one try came to.
pub(crate) enum Tried {
    Granted(Grant),
    Contended {
        left: Option<Duration>,
        holder: Option<Arc<str>>,
        /// It has a place in the lock's queue.
        is_queued: bool,
    },
}

pub(crate) fn told(e: Error, claim: &Claim) -> Error {
    e.with_engine("redis").with_operation("acquire").with_name(claim.name())
}

/// What engine and leases have in common.
pub(crate) struct Shared {
    pub(crate) store: Arc<Store>,
    pub(crate) renewals: Renewals<Store>,
}

impl RedisLock {
    /// Connects, checks the layout's version, and probes what can be guaranteed there.
    ///
    /// # Errors
    /// `InvalidConfig` if a setting is wrong, `Refused` if another version of the
    /// layout is in use, `Denied` if Redis does not let us, `Unsupported` if it is
    /// older than 6.0, `Unavailable` if no master answered in time.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing locked.
    pub async fn connect(config: RedisConfig) -> Result<Arc<Self>> {
        check_runtime().map_err(|e| e.with_engine("redis"))?;
        let store = Store::connect(config).await?;
        let shared = Shared { renewals: Renewals::new(Arc::clone(&store)), store };
        Ok(Arc::new(Self { shared: Arc::new(shared), polling: Polling::new() }))
    }

    /// Asks once, from `sent` on; with a queue for a place there, of whose turn that channel tells.
    /// `place` is where the claim may have been told of its turn.
    pub(crate) async fn attempt(
        &self,
        claim: &Claim,
        keys: &NameKeys,
        sent: Moment,
        queue: Option<&str>,
        place: Option<Place>,
    ) -> Result<Tried> {
        let store = &self.shared.store;
        let (token, replicas) = match store.acquire(claim, keys, sent, queue).await? {
            Answer::Granted(token, replicas) => (token, replicas),
            Answer::Contended { left, holder, is_queued } => return Ok(Tried::Contended { left, holder, is_queued }),
            Answer::Dead if claim.is_unanswered() => {
                claim.next_attempt_undone()?;
                let message = "an earlier request took the lock unheard, and that hold has run out since";
                return Err(Error::new(ErrorKind::Unavailable, message));
            }
            Answer::Dead => {
                let message = "this claim was abandoned or released; its id is dead";
                return Err(Error::new(ErrorKind::Lost, message));
            }
        };
        if store.config.wait_replicas > 0 {
            Box::pin(self.replicated(claim, keys, replicas)).await?;
        }
        Ok(Tried::Granted(self.grant(claim, token, sent, place)))
    }

    /// What was granted on a request that left at `sent`.
    pub(crate) fn grant(&self, claim: &Claim, token: FencingToken, sent: Moment, place: Option<Place>) -> Grant {
        let hold = self.polling.hold(claim.name());
        let lease = RedisLease::new(Arc::clone(&self.shared), claim.clone(), token, hold, place);
        Grant::new(claim, lease, sent, token).with_margin(MARGIN).with_reserved(claim.reserve())
    }

    /// Undoes a grant that too few replicas have.
    async fn replicated(
        &self,
        claim: &Claim,
        keys: &NameKeys,
        replicas: std::result::Result<u32, Failure>,
    ) -> Result<()> {
        let store = &self.shared.store;
        let wanted = store.config.wait_replicas;
        let error = match replicas {
            Ok(replicas) if replicas >= wanted => return Ok(()),
            Ok(replicas) => {
                let message = format!("{replicas} of {wanted} replicas acknowledged it in time; undone");
                Error::new(ErrorKind::Unavailable, message)
            }
            Err(failure) => failure.error,
        };
        // The id dies with it, and the next try has another: this undo may come late.
        match store.free(claim, keys, None, true).await {
            Ok(_) => claim.next_attempt_undone()?,
            Err(_) => claim.next_attempt()?,
        };
        Err(error)
    }
}

#[async_trait]
impl DistributedLock for RedisLock {
    fn guarantees(&self) -> Arc<Guarantees> {
        self.shared.store.standing.guarantees()
    }

    async fn probe(&self) -> Result<Arc<Guarantees>> {
        self.shared.store.probe().await
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt> {
        let keys = self.shared.store.keys.of(claim.name());
        match self.attempt(claim, &keys, claim.now(), None, None).await {
            Ok(Tried::Granted(grant)) => Ok(Attempt::Granted(grant)),
            Ok(Tried::Contended { left, holder, .. }) => Ok(Attempt::contended(left, holder)),
            Err(e) => Err(told(e, claim)),
        }
    }

    async fn acquire(&self, claim: &Claim) -> Result<Grant> {
        self.polling.acquire(&Waiting::new(self), Some(&*self.shared.store.ears), claim).await
    }

    async fn abandon(&self, claim: &Claim) -> Result<()> {
        if !claim.was_sent() {
            return Ok(());
        }
        let store = &self.shared.store;
        store.free(claim, &store.keys.of(claim.name()), None, claim.is_unanswered()).await?;
        Ok(())
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<HolderInfo>> {
        self.shared.store.inspect(name).await
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }
}

#[async_trait]
impl Admin for RedisLock {
    async fn list(&self, prefix: &str) -> Result<Vec<(LockName, HolderInfo)>> {
        self.shared.store.list(prefix).await
    }

    async fn force_release(&self, name: &LockName) -> Result<bool> {
        self.shared.store.force_release(name, None).await
    }

    async fn force_release_if(&self, name: &LockName, token: FencingToken) -> Result<bool> {
        self.shared.store.force_release(name, Some(token)).await
    }
}

impl fmt::Debug for RedisLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLock")
            .field("store", &self.shared.store)
            .field("renewed", &self.shared.renewals.len())
            .field("polling", &self.polling)
            .finish()
    }
}
