//! The engine: one session at a time, and claims in it.

use crate::config::{ZooKeeperConfig, invalid};
use crate::lease::ZooKeeperLease;
use crate::queue::{self, Before, Place, Standing};
use crate::session::Session;
use crate::sessions::Inner;
use async_trait::async_trait;
use fencelock_core::{
    Admin, Attempt, Claim, DistributedLock, Error, ErrorKind, FencingToken, Grant, Guarantees, HolderInfo, LockName,
    Obstacle, Result,
};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What the engine's rounding takes off a hold, beside the session's own margin.
const ROUNDING: Duration = Duration::from_millis(2);
/// How long a waiter rests after a failure, at the least and at the most.
const REST: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// Locks on ZooKeeper.
///
/// Made for one ensemble, and driven by a
/// [`LockClient`](fencelock_core::LockClient). The crate's own page describes
/// the nodes, the protocol and its limits.
///
/// # Drop
/// The session is closed when the engine and the last lease are gone, which
/// frees what it held.
#[derive(Clone)]
pub struct ZooKeeperLock {
    pub(crate) inner: Arc<Inner>,
}

impl ZooKeeperLock {
    /// Asks the servers what they are, opens a session, makes the root when it is missing, and probes
    /// what can be guaranteed. Servers that do not answer are left out until the next session.
    ///
    /// # Errors
    /// `InvalidConfig` if a setting is wrong or the runtime has no timers,
    /// `Refused` if another version of the layout is in use, `Denied` without
    /// permission, `Unavailable` if no server answered in time (the connect
    /// time-out) or outside a tokio runtime.
    ///
    /// # Cancel safety
    /// Dropping the future may leave the root made, and a session that runs out.
    pub async fn connect(config: ZooKeeperConfig) -> Result<Arc<Self>> {
        fencelock_core::check_runtime()?;
        config.check()?;
        Ok(Arc::new(Self { inner: Arc::new(Inner::connect(config).await?) }))
    }

    /// The time-out of the present session: the ttl of every hold in it.
    #[must_use]
    pub fn session_timeout(&self) -> Duration {
        self.inner.current().tempo.session
    }

    /// The transaction that made the node: it grows over the whole ensemble, over restarts and leaders.
    pub(crate) fn token(&self, czxid: i64) -> FencingToken {
        let czxid = u64::try_from(czxid).unwrap_or_default();
        FencingToken::new(czxid.saturating_add(self.inner.config.token_base))
    }

    async fn grant(&self, session: &Arc<Session>, claim: &Claim, place: Place) -> Result<Grant> {
        // Handed out with little time left it would be given up again, and the place with it.
        let tempo = &session.tempo;
        session.fresh(tempo.fresh()).await?;
        while session.age() > tempo.fresh() * 2 {
            session.fresh(Duration::ZERO).await?;
            // After a silence the first heartbeats prove little.
            if session.age() > tempo.fresh() * 2 {
                tokio::time::sleep(tempo.interval()).await;
            }
        }
        if session.has_ended() {
            return Err(Error::new(ErrorKind::Unavailable, "the session has ended"));
        }
        let token = self.token(place.czxid);
        let lease = ZooKeeperLease {
            engine: Arc::clone(&self.inner),
            session: Arc::clone(session),
            claim: claim.clone(),
            sequence: place.entry.sequence().into(),
            czxid: place.czxid,
        };
        // What lives in a session lives as long as the session does, whatever was asked for.
        let ttl = tempo.session.saturating_sub(claim.lock_delay());
        let sent = session.proved(claim.now());
        let grant = Grant::new(claim, lease, sent, token);
        Ok(grant.with_ttl(ttl).with_margin(tempo.margin + ROUNDING))
    }

    /// Takes a place and waits in it, until the first failure.
    async fn stand_in_line(&self, session: &Arc<Session>, claim: &Claim) -> Result<Grant> {
        check_terms(session, claim)?;
        let queue = session.keys.queue(claim.name());
        let spot = self.inner.line.enter(claim.id());
        let (place, mut entries) = queue::join(session, claim, &self.inner.voids).await?;
        loop {
            match queue::standing(&place.entry, &entries) {
                Standing::First => break,
                Standing::Gone => return Err(Error::new(ErrorKind::Unavailable, "the place in the queue was removed")),
                Standing::Behind { before, first } => {
                    if let Some(told) = self.inner.line.queue_behind(before.claim(), &place.path) {
                        if queue::wait_to_be_told(session, claim, &queue, &first, told).await? {
                            break;
                        }
                    } else {
                        queue::wait(session, claim, &queue, &before, &first).await?;
                    }
                    // Together, so that a waiter who is next needs no round trip more.
                    let listing = session.list(&queue);
                    let (listed, beaten) = tokio::join!(listing, session.fresh(session.tempo.fresh()));
                    beaten?;
                    entries = listed?;
                }
            }
        }
        let grant = self.grant(session, claim, place).await?;
        spot.granted();
        Ok(grant)
    }
}

fn check_terms(session: &Session, claim: &Claim) -> Result<()> {
    let tempo = &session.tempo;
    if claim.ttl() > tempo.session {
        return Err(invalid(format!(
            "a ttl of {:?} is more than the session of {:?} has; ask for less, or for a longer `session`",
            claim.ttl(),
            tempo.session
        )));
    }
    let delay = claim.lock_delay();
    if claim.server_ttl() > tempo.session || delay > tempo.longest_delay() {
        return Err(invalid(format!(
            "a lock delay of {delay:?} does not fit into the session: at most {:?}, and with the ttl no more than {:?}",
            tempo.longest_delay(),
            tempo.session
        )));
    }
    Ok(())
}

#[async_trait]
impl DistributedLock for ZooKeeperLock {
    fn guarantees(&self) -> Arc<Guarantees> {
        self.inner.current().guarantees()
    }

    async fn probe(&self) -> Result<Arc<Guarantees>> {
        self.inner.session().await?.probe().await
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt> {
        let session = self.inner.session().await?;
        check_terms(&session, claim)?;
        let queue = session.keys.queue(claim.name());
        let (place, entries) = queue::join(&session, claim, &self.inner.voids).await?;
        match queue::standing(&place.entry, &entries) {
            Standing::First => Ok(Attempt::Granted(self.grant(&session, claim, place).await?)),
            Standing::Gone => Err(Error::new(ErrorKind::Unavailable, "the place in the queue was removed")),
            Standing::Behind { first, .. } => {
                let deletion = session.client.delete(&place.path, None);
                let before = queue::before(&session, &queue, &first, place.since);
                let (before, gone) = tokio::join!(before, session.gone(deletion));
                gone?;
                let Before { holder, closed_for } = before;
                Ok(Attempt::contended(closed_for, holder.map(Into::into)))
            }
        }
    }

    async fn acquire(&self, claim: &Claim) -> Result<Grant> {
        let (mut claim, mut of, mut rest) = (claim.clone(), None, REST.0);
        loop {
            let failure = match self.inner.session().await {
                Ok(session) => {
                    // What an earlier session has sent may arrive until the servers end it, so its id is given up.
                    if of.is_some_and(|of| of != session.id) && claim.was_sent() {
                        claim = claim.next_attempt()?;
                    }
                    of = Some(session.id);
                    match self.stand_in_line(&session, &claim).await {
                        Ok(grant) => return Ok(grant),
                        Err(e) => e,
                    }
                }
                Err(e) => e,
            };
            if failure.kind() != ErrorKind::Unavailable {
                return Err(failure);
            }
            claim.met(Obstacle::Unreachable(failure.message().into()));
            tokio::time::sleep(rest).await;
            rest = (rest * 2).min(REST.1);
        }
    }

    async fn abandon(&self, claim: &Claim) -> Result<()> {
        if !claim.was_sent() {
            return Ok(());
        }
        self.inner.voids.insert(claim.id());
        let session = self.inner.session().await?;
        let queue = session.keys.queue(claim.name());
        session.purge(&queue, claim.id()).await?;
        if claim.is_unanswered() && self.inner.has_former() {
            self.inner.former_have_ended(&session).await?;
            session.purge(&queue, claim.id()).await?;
        }
        Ok(())
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<HolderInfo>> {
        self.told(name).await
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }
}

impl fmt::Debug for ZooKeeperLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZooKeeperLock")
            .field("config", &self.inner.config)
            .field("deployment", &self.inner.current().guarantees().deployment())
            .finish_non_exhaustive()
    }
}
