//! The engine: one client's locks in etcd.

use crate::EtcdConfig;
use crate::attempt::Standing;
use crate::failure::{Failure, Refusal};
use crate::keys::Keys;
use crate::members::Members;
use crate::pool::Pool;
use crate::probe::Probe;
use crate::queue::{Waited, dead};
use crate::shared::Use;
use crate::sync::lock;
use crate::tickets::Tickets;
use crate::watches::Watches;
use async_trait::async_trait;
use fencelock_core::{
    Admin, Attempt, Claim, DistributedLock, Error, ErrorKind, Grant, Guarantees, HolderInfo, LockName, Result,
};
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// How often a single try is made again when its session had ended unnoticed.
const TRIES: u32 = 3;
/// How long after a member failed the deployment is probed anew.
const PROBE_AFTER: Duration = Duration::from_secs(2);

/// Locks in etcd.
///
/// Driven by a [`LockClient`](fencelock_core::LockClient). The crate's own page
/// describes the keys, the protocol and its limits.
///
/// # Drop
/// When the engine and its last hold are gone, its leases are revoked.
pub struct EtcdLock {
    inner: Arc<Inner>,
}

/// What the engine and its holds share.
pub(crate) struct Inner {
    pub(crate) members: Arc<Members>,
    pub(crate) keys: Keys,
    pub(crate) pool: Pool,
    pub(crate) tickets: Tickets,
    pub(crate) watches: Watches,
    guarantees: Mutex<Arc<Guarantees>>,
}

impl EtcdLock {
    /// Connects, checks the version of the layout, and probes what can be guaranteed there.
    ///
    /// Must be called, and used, inside one tokio runtime.
    ///
    /// # Errors
    /// `InvalidConfig` if a setting or an attestation is wrong, `Refused` if another
    /// version of the layout is in use, `Denied` if we are not let in,
    /// `Unavailable` if no member answered.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing but, perhaps, the version of the layout.
    pub async fn connect(config: EtcdConfig) -> Result<Arc<Self>> {
        config.check()?;
        let members = Arc::new(Members::of(&config).await?);
        let keys = Keys::under(config.prefix());
        crate::layout::check(&members, &keys).await?;
        let guarantees = Probe::run(&members).await?.guarantees(&config)?;
        let (pool, watches) = (Pool::new(Arc::clone(&members)), Watches::new(Arc::clone(&members)));
        let guarantees = Mutex::new(Arc::new(guarantees));
        let inner = Inner { members, keys, pool, tickets: Tickets::default(), watches, guarantees };
        let inner = Arc::new(inner);
        tokio::spawn(probe_anew(Arc::downgrade(&inner), config, inner.members.moves()));
        Ok(Arc::new(Self { inner }))
    }
}

/// Probes again whenever another member is asked first, for as long as there is an engine.
async fn probe_anew(engine: Weak<Inner>, config: EtcdConfig, mut moves: tokio::sync::watch::Receiver<usize>) {
    while moves.changed().await.is_ok() {
        tokio::time::sleep(PROBE_AFTER).await;
        moves.mark_unchanged();
        let Some(inner) = engine.upgrade() else { return };
        if let Ok(Ok(found)) = Probe::run(&inner.members).await.map(|probe| probe.guarantees(&config)) {
            *lock(&inner.guarantees) = Arc::new(found);
        }
    }
}

impl Inner {
    /// The lease that the claim was sent with before, or the one for such claims.
    pub(crate) fn lease(&self, claim: &Claim) -> Use {
        self.tickets.get(claim.id()).unwrap_or_else(|| self.pool.lease(claim))
    }

    /// One try; none if the session was found to have ended.
    async fn try_under(self: &Arc<Self>, claim: &Claim) -> Result<Option<Attempt>> {
        let lease = self.lease(claim);
        let limit = self.members.limit();
        let proved = tokio::time::timeout(limit, lease.until_proved(claim)).await;
        let proof = match proved.unwrap_or_else(|_| Err(Failure::timed_out(limit))) {
            Ok(proof) => proof,
            Err(Failure::Refused(Refusal::NoLease)) => return Ok(None),
            Err(failure) => return Err(failure.into()),
        };
        self.tickets.insert(claim.id(), &lease);
        let failure = match self.try_once(claim, proof.id).await {
            Ok(Standing::First { created, seen }) => {
                return Ok(Some(Attempt::Granted(self.granted(claim, &lease, proof, created, seen))));
            }
            Ok(Standing::Absent { holder }) => {
                if claim.is_unanswered() {
                    // An earlier copy may still arrive, and take the lock for nobody.
                    self.undo(claim).await?;
                }
                self.tickets.refused(claim);
                return Ok(Some(Attempt::contended(None, holder)));
            }
            Ok(Standing::Behind(behind)) => {
                self.undo(claim).await?;
                return Ok(Some(Attempt::contended(None, behind.holder)));
            }
            Ok(Standing::Dead) => {
                self.tickets.remove(claim.id());
                return Err(dead());
            }
            Err(failure) => failure,
        };
        if failure.had_no_effect() {
            self.tickets.refused(claim);
        }
        if let Failure::Refused(Refusal::NoLease) = failure {
            lease.end(failure);
            return Ok(None);
        }
        Err(failure.into())
    }
}

#[async_trait]
impl DistributedLock for EtcdLock {
    fn guarantees(&self) -> Arc<Guarantees> {
        Arc::clone(&lock(&self.inner.guarantees))
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt> {
        let mut claim = claim.clone();
        for _ in 0..TRIES {
            match self.inner.try_under(&claim).await.map_err(|e| e.with_engine("etcd"))? {
                Some(attempt) => return Ok(attempt),
                None => claim = claim.next_attempt()?,
            }
        }
        Err(Error::new(ErrorKind::Unavailable, "sessions end as soon as they begin").with_engine("etcd"))
    }

    async fn acquire(&self, claim: &Claim) -> Result<Grant> {
        let mut claim = claim.clone();
        loop {
            match self.inner.wait(&claim).await.map_err(|e| e.with_engine("etcd"))? {
                Waited::Granted(grant) => return Ok(grant),
                Waited::Removed => {
                    tracing::debug!(target: "fencelock", engine = "etcd", name = %claim.name(), claim = %claim.id(),
                        "the place in the queue is gone; queueing anew");
                    claim = claim.next_attempt()?;
                    tokio::time::sleep(Duration::from_millis(fastrand::u64(1..20))).await;
                }
            }
        }
    }

    async fn abandon(&self, claim: &Claim) -> Result<()> {
        if !claim.was_sent() {
            // It may have got as far as its lease, which must not be kept alive for it.
            self.inner.tickets.remove(claim.id());
            return Ok(());
        }
        Ok(self.inner.undo(claim).await?)
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<HolderInfo>> {
        self.inner.holder_of(name).await
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }
}

#[async_trait]
impl Admin for EtcdLock {
    async fn list(&self, prefix: &str) -> Result<Vec<(LockName, HolderInfo)>> {
        self.inner.holders(prefix).await
    }

    async fn force_release(&self, name: &LockName) -> Result<bool> {
        self.inner.take_away(name).await
    }
}

impl fmt::Debug for EtcdLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdLock")
            .field("members", &self.inner.members)
            .field("keys", &self.inner.keys)
            .field("pool", &self.inner.pool)
            .field("claims", &self.inner.tickets.count())
            .finish()
    }
}
