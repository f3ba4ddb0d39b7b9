//! The engine: one session at a time, and claims in it.

use crate::config::{ZooKeeperConfig, invalid};
use crate::failure::Failure;
use crate::keys;
use crate::lease::ZooKeeperLease;
use crate::probe::Probe;
use crate::queue::{self, Place, Standing};
use crate::session::Session;
use crate::tempo::Ticks;
use crate::voids::Voids;
use crate::words;
use async_trait::async_trait;
use fencelock_core::{
    Admin, Attempt, Claim, DistributedLock, Error, ErrorKind, FencingToken, Grant, Guarantees, HolderInfo, LockName,
    Obstacle, Result,
};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

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

pub(crate) struct Inner {
    config: ZooKeeperConfig,
    pub(crate) voids: Voids,
    current: Mutex<Current>,
    /// Held by who opens a session; when that failed last, and how.
    opening: tokio::sync::Mutex<Option<(Instant, String)>>,
}

struct Current {
    session: Arc<Session>,
    ticks: Ticks,
    guarantees: Arc<Guarantees>,
}

impl Current {
    async fn open(config: &ZooKeeperConfig, earlier: Option<Ticks>) -> Result<Self> {
        let told = words::ticks(config).await;
        // Servers that are just coming up tell nothing; what they told before is still so.
        let ticks = earlier.filter(|_| told.lag().is_none()).unwrap_or(told);
        let session = Session::open(config, &ticks).await?;
        let guarantees = Arc::new(Probe::run(&session, &ticks).await.guarantees(config)?);
        Ok(Self { session, ticks, guarantees })
    }
}

impl ZooKeeperLock {
    /// Opens a session, makes the root when it is missing, and probes what can be guaranteed.
    ///
    /// # Errors
    /// `InvalidConfig` if a setting is wrong, `Refused` if another version of
    /// the layout is in use, `Denied` without permission, `Unavailable` if no
    /// server answered in time. Outside a tokio runtime it panics as tokio's timers do.
    ///
    /// # Cancel safety
    /// Dropping the future may leave the root made, and a session that runs out.
    pub async fn connect(config: ZooKeeperConfig) -> Result<Arc<Self>> {
        config.check()?;
        let current = Current::open(&config, None).await?;
        let voids = Voids::new(current.session.tempo.session * 2);
        let inner = Inner { config, voids, current: Mutex::new(current), opening: tokio::sync::Mutex::new(None) };
        Ok(Arc::new(Self { inner: Arc::new(inner) }))
    }

    /// The time-out of the present session: the ttl of every hold in it.
    #[must_use]
    pub fn session_timeout(&self) -> Duration {
        self.inner.current().session.tempo.session
    }

    /// The transaction that made the node: it grows over the whole ensemble, over restarts and leaders.
    fn token(&self, czxid: i64) -> FencingToken {
        let czxid = u64::try_from(czxid).unwrap_or_default();
        FencingToken::new(czxid.saturating_add(self.inner.config.token_base))
    }

    async fn grant(&self, session: &Arc<Session>, claim: &Claim, place: Place) -> Result<Grant> {
        session.fresh(session.tempo.usable() / 2).await?;
        if session.has_ended() {
            return Err(Error::new(ErrorKind::Unavailable, "the session has ended"));
        }
        let token = self.token(place.czxid);
        let lease = ZooKeeperLease {
            engine: Arc::clone(&self.inner),
            session: Arc::clone(session),
            claim: claim.clone(),
            place,
        };
        // What lives in a session lives as long as the session does, whatever was asked for.
        let ttl = session.tempo.session.saturating_sub(claim.lock_delay());
        let sent = session.proved(claim.now());
        let grant = Grant::new(claim, lease, sent, token);
        Ok(grant.with_ttl(ttl).with_margin(session.tempo.margin + ROUNDING))
    }

    /// Takes a place and waits in it, until the first failure.
    async fn stand_in_line(&self, claim: &Claim) -> Result<Grant> {
        let session = self.inner.session().await?;
        check_terms(&session, claim)?;
        let queue = session.keys.queue(claim.name());
        let (place, mut entries) = queue::join(&session, claim, &self.inner.voids).await?;
        loop {
            match queue::standing(&place.entry, &entries) {
                Standing::First => return self.grant(&session, claim, place).await,
                Standing::Gone => return Err(Error::new(ErrorKind::Unavailable, "the place in the queue was removed")),
                Standing::Behind { before, first } => {
                    queue::wait(&session, claim, &queue, &before, &first).await?;
                    entries = session.list(&queue).await?;
                }
            }
        }
    }
}

impl Inner {
    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn live(&self) -> Option<Arc<Session>> {
        let current = self.current();
        (!current.session.has_ended()).then(|| Arc::clone(&current.session))
    }

    /// The present session, or a new one if it has ended.
    ///
    /// # Cancel safety
    /// A session that is being opened goes on being opened, for whoever asks next.
    pub(crate) async fn session(self: &Arc<Self>) -> Result<Arc<Session>> {
        if let Some(session) = self.live() {
            return Ok(session);
        }
        let (inner, asked) = (Arc::clone(self), Instant::now());
        let opening = tokio::spawn(async move { inner.reopen(asked).await });
        opening.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Unavailable, "the runtime is going down")))
    }

    async fn reopen(&self, asked: Instant) -> Result<Arc<Session>> {
        let mut last_failure = self.opening.lock().await;
        if let Some(session) = self.live() {
            return Ok(session);
        }
        // Whoever waited for another's attempt shares its failure, instead of each making one in turn.
        if let Some((when, why)) = &*last_failure
            && *when > asked
        {
            return Err(Error::new(ErrorKind::Unavailable, why.clone()));
        }
        let earlier = self.current().ticks;
        match Current::open(&self.config, Some(earlier)).await {
            Ok(opened) => {
                let session = Arc::clone(&opened.session);
                *self.current() = opened;
                Ok(session)
            }
            Err(e) => {
                *last_failure = Some((Instant::now(), e.message().to_owned()));
                Err(e)
            }
        }
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
    if claim.server_ttl() > tempo.session || delay > tempo.interval() {
        return Err(invalid(format!(
            "a lock delay of {delay:?} does not fit into the session: at most {:?}, and with the ttl no more than {:?}",
            tempo.interval(),
            tempo.session
        )));
    }
    Ok(())
}

#[async_trait]
impl DistributedLock for ZooKeeperLock {
    fn guarantees(&self) -> Arc<Guarantees> {
        Arc::clone(&self.inner.current().guarantees)
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
                let (holder, gone) = tokio::join!(queue::holder(&session, &queue, &first), session.gone(deletion));
                gone?;
                Ok(Attempt::contended(None, holder.map(Into::into)))
            }
        }
    }

    async fn acquire(&self, claim: &Claim) -> Result<Grant> {
        let mut rest = REST.0;
        loop {
            match self.stand_in_line(claim).await {
                Err(e) if e.kind() == ErrorKind::Unavailable => {
                    claim.met(Obstacle::Unreachable(e.message().into()));
                }
                outcome => return outcome,
            }
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
        Ok(session.purge(&session.keys.queue(claim.name()), claim.id()).await?)
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<HolderInfo>> {
        let session = self.inner.session().await?;
        let queue = session.keys.queue(name);
        loop {
            let entries = session.list_synced(&queue).await?;
            let Some(first) = queue::first(&entries) else { return Ok(None) };
            match session.call(session.client.get_data(&format!("{queue}/{}", first.node))).await {
                Ok((data, stat)) => {
                    let (holder, note) = keys::read_data(&data);
                    let info = HolderInfo::new(holder, self.token(stat.czxid));
                    return Ok(Some(info.with_note(note.map(Into::into))));
                }
                // Gone between the two: then somebody else is first, or nobody.
                Err(Failure::NoNode) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }
}

impl fmt::Debug for ZooKeeperLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZooKeeperLock")
            .field("config", &self.inner.config)
            .field("deployment", &self.inner.current().guarantees.deployment())
            .finish_non_exhaustive()
    }
}
