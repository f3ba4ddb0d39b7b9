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
    Admin, Attempt, Claim, DistributedLock, Error, ErrorKind, FencingToken, Grant, Guarantees, HolderInfo, LockName,
    Result,
};
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// How often a single try is made again when its session had ended unnoticed.
const TRIES: u32 = 3;
/// How long after a member failed the deployment is probed anew.
const PROBE_AFTER: Duration = Duration::from_secs(2);
/// How long after a probe to which not every endpoint answered there is another.
const INCOMPLETE: Duration = Duration::from_secs(8);

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
    /// What the last probe found; locked while there is another.
    probed: tokio::sync::Mutex<Probe>,
    attested: Vec<String>,
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
        fencelock_core::check_runtime().map_err(|e| e.with_engine("etcd"))?;
        config.check()?;
        let members = Arc::new(Members::of(&config).await?);
        let found = Probe::run(&members, None).await?;
        let keys = Keys::under(config.prefix());
        crate::layout::check(&members, &keys).await?;
        found.are_one_store(&members).await?;
        let guarantees = Mutex::new(Arc::new(found.guarantees().attest(&config.attested)?));
        let watches = Watches::new(Arc::clone(&members));
        let pool = Pool::new(Arc::clone(&members), watches.rebuilt());
        let (tickets, attested) = (Tickets::default(), config.attested);
        let probed = tokio::sync::Mutex::new(found);
        let inner = Arc::new(Inner { members, keys, pool, tickets, watches, guarantees, probed, attested });
        tokio::spawn(probe_anew(Arc::downgrade(&inner), inner.members.moves()));
        Ok(Arc::new(Self { inner }))
    }
}

/// Probes again whenever another member is asked first, and now and then while one has not answered,
/// for as long as there is an engine.
async fn probe_anew(engine: Weak<Inner>, mut moves: tokio::sync::watch::Receiver<usize>) {
    let mut complete = false;
    loop {
        let moved = if complete {
            moves.changed().await
        } else {
            tokio::time::timeout(INCOMPLETE, moves.changed()).await.unwrap_or(Ok(()))
        };
        if moved.is_err() {
            return;
        }
        tokio::time::sleep(PROBE_AFTER).await;
        moves.mark_unchanged();
        let Some(inner) = engine.upgrade() else { return };
        complete = inner.probe().await.is_ok_and(|complete| complete);
    }
}

impl Inner {
    /// Finds out anew what the deployment is; whether there is nothing left to find out.
    async fn probe(&self) -> Result<bool> {
        let mut probed = self.probed.lock().await;
        let found = Probe::run(&self.members, Some(&probed)).await?;
        // Strangers are noted by the way.
        let one_store = found.are_one_store(&self.members).await.is_ok();
        *lock(&self.guarantees) = Arc::new(found.guarantees().attest_again(&self.attested));
        let complete = one_store && found.is_complete() && self.members.identity.stranger().is_none();
        *probed = found;
        Ok(complete)
    }

    /// Nobody may lock where others of the same configuration may be led elsewhere.
    pub(crate) fn check_endpoints(&self) -> Result<(), Failure> {
        self.members.identity.stranger().map_or(Ok(()), Err)
    }

    /// The lease that the claim was sent with before, or the one for such claims.
    pub(crate) fn lease(&self, claim: &Claim) -> Use {
        self.tickets.get(claim.id()).unwrap_or_else(|| self.pool.lease(claim))
    }

    /// One try; none if the session was found to have ended.
    async fn try_under(self: &Arc<Self>, claim: &Claim) -> Result<Option<Attempt>> {
        self.check_endpoints()?;
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
            Ok(Standing::Absent { holder, closed }) => {
                if claim.is_unanswered() {
                    // An earlier copy may still arrive, and take the lock for nobody.
                    Box::pin(self.undo(claim)).await?;
                }
                self.tickets.refused(claim);
                let left = match closed {
                    Some(lease) => Box::pin(self.closed_for(lease)).await,
                    None => None,
                };
                return Ok(Some(Attempt::contended(left, holder)));
            }
            Ok(Standing::Behind(behind)) => {
                Box::pin(self.undo(claim)).await?;
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

    async fn probe(&self) -> Result<Arc<Guarantees>> {
        self.inner.probe().await.map_err(|e| e.with_engine("etcd"))?;
        Ok(self.guarantees())
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
            match self.inner.wait(&claim).await {
                Ok(Waited::Granted(grant)) => return Ok(grant),
                Err(e) => {
                    // Its undo may be refused for as long as this was: who waits behind it must not rely on that.
                    self.inner.tickets.leave(claim.id());
                    return Err(e.with_engine("etcd"));
                }
                Ok(Waited::Removed) => {
                    self.inner.tickets.leave(claim.id());
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
        self.inner.take_away(name, None).await
    }

    async fn force_release_if(&self, name: &LockName, token: FencingToken) -> Result<bool> {
        self.inner.take_away(name, Some(token)).await
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
