//! What callers hold: a cheap handle over any engine.

use crate::cohort::{Cohorts, check_cohort};
use crate::degraded::{Watch, look, probe_every};
use crate::driven::{Driven, Manner};
use crate::hold::Context;
use crate::ledger::Ledger;
use crate::observe::Observer;
use crate::reaper::reap;
use crate::schedule::{Schedule, tick};
use crate::seat::Scopes;
use crate::validity::Drift;
use crate::{
    AcquireOptions, Admin, Advice, Capability, Clock, DistributedLock, Error, ErrorKind, FencingToken, Guarantees,
    HolderInfo, Liveness, LockGuard, LockName, NamedLock, OnDegraded, ReentrantScope, Requirements, Result,
    SeveralLocks,
};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// The shortest time between probes of a client's own.
const LEAST_REPROBE: Duration = Duration::from_secs(1);

/// A client of one lock service. Cloning is cheap and gives the same client.
///
/// A client belongs to the tokio runtime it was made on, since its connections
/// and timers do. Its methods may be awaited anywhere, on that runtime, another
/// or none; once that runtime is gone they answer `Unavailable`. A runtime of one
/// thread (`current_thread`) does the client's work only while it is driven, by
/// `block_on`: calls from elsewhere wait meanwhile, and nothing is renewed.
///
/// # Drop
/// Dropping the last clone while guards live changes nothing for them. Pending
/// undos and releases go on in the background; [`close`](Self::close) waits for them.
#[derive(Clone)]
pub struct LockClient {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) engine: Arc<dyn DistributedLock>,
    pub(crate) clock: Clock,
    pub(crate) holder: Arc<str>,
    pub(crate) defaults: AcquireOptions,
    pub(crate) home: Handle,
    pub(crate) context: Arc<Context>,
    pub(crate) watch: Arc<Watch>,
    pub(crate) scopes: Scopes,
    pub(crate) cohorts: Cohorts,
    closed: AtomicBool,
    /// Rung when the client is closed.
    pub(crate) closing: Notify,
}

impl Shared {
    pub(crate) fn engine_name(&self) -> String {
        self.context.observer.engine().to_string()
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.context.ledger.is_closed() {
            return Err(Error::new(ErrorKind::Unavailable, "the runtime that the client connected on is gone"));
        }
        if self.closed.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Unavailable, "the client is closed"));
        }
        Ok(())
    }

    /// Whether a lock may be asked for.
    pub(crate) fn check_ready(&self) -> Result<()> {
        self.check_open()?;
        self.watch.check()
    }
}

impl LockClient {
    /// A client of `engine` with the default options.
    ///
    /// # Errors
    /// `Unavailable` outside a tokio runtime.
    pub fn new(engine: Arc<dyn DistributedLock>) -> Result<Self> {
        Self::builder(engine).build()
    }

    /// A client of `engine` with options of its own.
    pub fn builder(engine: Arc<dyn DistributedLock>) -> ClientBuilder {
        let drift = Some(Drift::DEFAULT);
        ClientBuilder {
            engine,
            clock: Clock::system(),
            holder: None,
            defaults: AcquireOptions::default(),
            drift,
            requirements: Requirements::default(),
            on_degraded: OnDegraded::default(),
            reprobe: None,
        }
    }

    /// The lock called `name`, with options to set before either verb.
    ///
    /// A name that is not allowed is refused when the lock is asked for.
    pub fn named(&self, name: &str) -> NamedLock {
        NamedLock::new(Arc::clone(&self.shared), name)
    }

    /// Waits for the lock with the client's options; see [`NamedLock::acquire`].
    ///
    /// # Errors
    /// As for [`NamedLock::acquire`].
    ///
    /// # Cancel safety
    /// Dropping the future at any point leaves nothing behind.
    pub fn acquire(&self, name: &str) -> impl Future<Output = Result<LockGuard>> + Send + use<> {
        self.named(name).acquire()
    }

    /// Tries once; `None` if somebody else has it; see [`NamedLock::try_acquire`].
    ///
    /// # Errors
    /// As for [`NamedLock::try_acquire`].
    ///
    /// # Cancel safety
    /// Dropping the future at any point leaves nothing behind.
    pub fn try_acquire(&self, name: &str) -> impl Future<Output = Result<Option<LockGuard>>> + Send + use<> {
        self.named(name).try_acquire()
    }

    /// The scope called `id`, in which nested acquires of one name share one hold; see [`ReentrantScope`].
    ///
    /// Call it after the job, with a request's id for instance: the same id on the
    /// same client is the same scope, and it stands as the note beside its locks.
    #[must_use]
    pub fn reentrant(&self, id: &str) -> ReentrantScope {
        ReentrantScope::new(&self.shared, id)
    }

    /// Several locks that are acquired together, all or nothing; see [`SeveralLocks`].
    pub fn all<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> SeveralLocks {
        SeveralLocks::new(&self.shared, names)
    }

    /// Who holds `name` now, as the server tells it; `None` if nobody does.
    ///
    /// The answer is old when it arrives: show it, never decide by it.
    ///
    /// # Errors
    /// `InvalidName`, or `Unavailable` if no answer came.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn inspect(&self, name: &str) -> Result<Option<HolderInfo>> {
        let name = LockName::new(name)?;
        self.run("inspect", move |engine| async move { engine.inspect(&name).await }).await
    }

    /// The held locks whose name begins with `prefix`, by name.
    ///
    /// # Errors
    /// `Unsupported` if the engine cannot list; `Unavailable` if no answer came.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn list(&self, prefix: &str) -> Result<Vec<(LockName, HolderInfo)>> {
        let prefix = prefix.to_owned();
        self.run("list", move |engine| async move { admin(&*engine)?.list(&prefix).await }).await
    }

    /// Frees `name` whoever holds it; false if nobody did. For operators: the old
    /// holder works on until it is told, and only a gate stops its late effects.
    ///
    /// # Errors
    /// `Unsupported` if the engine cannot; `Unavailable` if no answer came.
    ///
    /// # Cancel safety
    /// Dropping the future may or may not free the lock.
    pub async fn force_release(&self, name: &str) -> Result<bool> {
        let name = LockName::new(name)?;
        self.run("force_release", move |engine| async move { admin(&*engine)?.force_release(&name).await }).await
    }

    /// Frees `name` if it is held under `token`, as [`inspect`](Self::inspect) showed it; false, and
    /// nothing is changed, if it is not any more. For operators, who decide on the hold they have
    /// looked at: the next one keeps the lock. Otherwise as [`force_release`](Self::force_release).
    ///
    /// # Errors
    /// `Unsupported` if the engine cannot; `Unavailable` if no answer came.
    ///
    /// # Cancel safety
    /// Dropping the future may or may not free the lock from that hold, and from no other.
    pub async fn force_release_if(&self, name: &str, token: FencingToken) -> Result<bool> {
        let name = LockName::new(name)?;
        let work = move |engine: Arc<dyn DistributedLock>| async move {
            admin(&*engine)?.force_release_if(&name, token).await
        };
        self.run("force_release_if", work).await
    }

    async fn run<T, W, F>(&self, operation: &'static str, work: W) -> Result<T>
    where
        T: Send + 'static,
        W: FnOnce(Arc<dyn DistributedLock>) -> F,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let shared = &self.shared;
        let told = |e: Error| e.with_engine(shared.engine_name()).with_operation(operation);
        shared.check_open().map_err(told)?;
        let work = work(Arc::clone(&shared.engine));
        Driven::new(shared, Manner::Inline, work).await.map_err(told)
    }

    /// What the engine guarantees in the deployment it is connected to.
    #[must_use]
    pub fn guarantees(&self) -> Arc<Guarantees> {
        self.shared.engine.guarantees()
    }

    /// Probes the deployment now, without waiting for a reconnect, and tells what it guarantees.
    ///
    /// If that is less than was required, what [`OnDegraded`] says happens at once.
    ///
    /// # Errors
    /// `Unavailable` if no answer came: what was found before still counts.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn probe(&self) -> Result<Arc<Guarantees>> {
        let found = self.run("probe", |engine| async move { engine.probe().await }).await?;
        look(&self.shared.watch, &self.shared.context.schedule);
        Ok(found)
    }

    /// Who this client says it is.
    #[must_use]
    pub fn holder(&self) -> &str {
        &self.shared.holder
    }

    /// How far the rates of this host's clock and the server's are allowed to
    /// differ, in parts per million.
    #[must_use]
    pub fn clock_drift(&self) -> u32 {
        self.shared.context.drift.ppm()
    }

    /// Undos and releases that are still being worked off.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.shared.context.ledger.open()
    }

    /// Locks that this client holds.
    #[must_use]
    pub fn held(&self) -> usize {
        self.shared.context.schedule.len()
    }

    /// What the holds of this client say of a good ttl for the locks whose names
    /// begin with `prefix`; of all its locks, for the empty prefix.
    ///
    /// Times are kept for at most 128 [prefixes](crate::prefix_of); names beyond
    /// those count for the empty prefix alone. Tell the time-out of the slowest
    /// thing that holders wait for with [`Advice::above`].
    #[must_use]
    pub fn advice(&self, prefix: &str) -> Advice {
        self.shared.context.observer.advice(prefix)
    }

    /// Refuses new acquires from here on, ends those under way with `Unavailable`,
    /// and waits until every pending undo and release is done. Guards that live
    /// stay valid and are not waited for.
    ///
    /// While the service is away this takes as long as a lease may last, or, on an
    /// engine with a session, until the service answers; put a time-out around it
    /// if that is too long. In a session, what was lost is deleted no sooner than its
    /// deadline and lock delay, and that is waited for too.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the client closed and the work going on.
    pub async fn close(&self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        self.shared.cohorts.close();
        self.shared.closing.notify_waiters();
        if !self.shared.context.ledger.is_closed() {
            self.shared.context.ledger.worked_off().await;
        }
    }
}

fn admin(engine: &dyn DistributedLock) -> Result<&dyn Admin> {
    engine.admin().ok_or_else(|| Error::new(ErrorKind::Unsupported, "this engine has no verbs for operators"))
}

impl fmt::Debug for LockClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockClient")
            .field("engine", self.shared.context.observer.engine())
            .field("holder", &self.shared.holder)
            .field("held", &self.held())
            .field("pending", &self.pending())
            .finish_non_exhaustive()
    }
}

/// Sets up a [`LockClient`].
#[derive(Debug)]
#[must_use = "build it to get a client"]
pub struct ClientBuilder {
    engine: Arc<dyn DistributedLock>,
    clock: Clock,
    holder: Option<Arc<str>>,
    defaults: AcquireOptions,
    drift: Option<Drift>,
    requirements: Requirements,
    on_degraded: OnDegraded,
    reprobe: Option<Duration>,
}

impl ClientBuilder {
    /// Who this client says it is; `host:process id` unless set.
    pub fn holder(mut self, holder: impl Into<Arc<str>>) -> Self {
        self.holder = Some(holder.into());
        self
    }

    /// The options of every acquisition that sets none of its own.
    pub fn defaults(mut self, defaults: AcquireOptions) -> Self {
        self.defaults = defaults;
        self
    }

    /// How far the rates of this host's clock and the server's may differ, in
    /// parts per million; 10,000 (1 %) unless set, 500,000 at most.
    pub fn clock_drift(mut self, ppm: u32) -> Self {
        self.drift = Drift::from_ppm(ppm);
        self
    }

    /// What the deployment has to give; nothing unless set.
    pub fn requirements(mut self, requirements: Requirements) -> Self {
        self.requirements = requirements;
        self
    }

    /// What to do when it no longer gives that; a warning unless set.
    pub fn on_degraded(mut self, reaction: OnDegraded) -> Self {
        self.on_degraded = reaction;
        self
    }

    /// Probes the deployment this often, 1 s at least, besides after each reconnect; never unless set.
    pub fn reprobe(mut self, interval: Duration) -> Self {
        self.reprobe = Some(interval);
        self
    }

    /// The clock that deadlines are read from. For tests.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// The client.
    ///
    /// # Errors
    /// `InvalidConfig` names the option that is out of bounds, or says that the
    /// runtime has no timers; `Refused` if the deployment does not give what is
    /// required, or cannot pass on to the [cohort](AcquireOptions::cohort) that is asked for; `Unavailable` outside a tokio runtime.
    pub fn build(self) -> Result<LockClient> {
        let guarantees = self.engine.guarantees();
        let drift = self
            .drift
            .ok_or_else(|| Error::new(ErrorKind::InvalidConfig, "clock_drift is at most 500000 parts per million"))?;
        if self.reprobe.is_some_and(|interval| interval < LEAST_REPROBE) {
            return Err(Error::new(ErrorKind::InvalidConfig, "reprobe is 1s at least"));
        }
        let defaults = self.defaults.checked()?;
        check_cohort(&defaults, &*self.engine)?;
        let home = home()?;
        let watch = Arc::new(Watch::new(Arc::clone(&self.engine), self.requirements, self.on_degraded)?);
        let schedule = Arc::new(Schedule::default());
        let (ledger, inbox) = Ledger::new();
        let rescue = (Arc::clone(ledger.rescue()), self.clock.clone());
        home.spawn(reap(Arc::clone(&self.engine), Arc::clone(&schedule), rescue, inbox));
        home.spawn(tick(Arc::clone(&schedule), self.clock.clone(), Arc::clone(&watch)));
        let push_loss = guarantees.has(Capability::PushLoss);
        let in_session = guarantees.liveness() == Liveness::Session;
        let observer = Arc::new(Observer::new(guarantees.engine().into()));
        let shared = Shared {
            engine: self.engine,
            clock: self.clock,
            holder: self.holder.unwrap_or_else(default_holder),
            defaults,
            home,
            context: Arc::new(Context { observer, ledger, schedule, drift, push_loss, in_session }),
            watch,
            scopes: Scopes::default(),
            cohorts: Cohorts::default(),
            closed: AtomicBool::new(false),
            closing: Notify::new(),
        };
        let shared = Arc::new(shared);
        if let Some(interval) = self.reprobe {
            shared.home.spawn(probe_every(interval, Arc::downgrade(&shared)));
        }
        Ok(LockClient { shared })
    }
}

/// Whether a client can live where this is called. Engines ask before they connect.
///
/// # Errors
/// `Unavailable` outside a tokio runtime; `InvalidConfig` for one without timers.
pub fn check_runtime() -> Result<()> {
    home().map(drop)
}

/// The runtime that this is called on.
fn home() -> Result<Handle> {
    let here = Handle::try_current().map_err(|_| {
        Error::new(ErrorKind::Unavailable, "a client is made inside a tokio runtime, and there is none here")
    })?;
    // tokio tells that there are no timers only by panicking.
    let has_timers = std::panic::catch_unwind(|| drop(tokio::time::sleep(Duration::ZERO))).is_ok();
    if !has_timers {
        let message = "the runtime has no timers; build it with `enable_time` or `enable_all`";
        return Err(Error::new(ErrorKind::InvalidConfig, message));
    }
    Ok(here)
}

fn default_holder() -> Arc<str> {
    #[cfg(unix)]
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(unix))]
    let host = "localhost";
    format!("{host}:{}", std::process::id()).into()
}
