//! A lock by its name, with options.

use crate::client::Shared;
use crate::cohort::check_cohort;
use crate::pursuit::{self, Wish};
use crate::{AcquireOptions, LockGuard, LockName, Moment, Result, Wait};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tracing::Instrument;

/// One lock of a client, with its options: owned, reusable and cheap to clone.
///
/// Keep it in the struct of the service that needs the lock.
#[derive(Clone)]
#[must_use = "names a lock but does not acquire it"]
pub struct NamedLock {
    shared: Arc<Shared>,
    /// The name, or what was given as one and is refused when the lock is asked for.
    name: std::result::Result<LockName, Arc<str>>,
    options: AcquireOptions,
}

impl NamedLock {
    pub(crate) fn new(shared: Arc<Shared>, name: &str) -> Self {
        let options = shared.defaults.clone();
        Self { shared, name: LockName::new(name).map_err(|_| name.into()), options }
    }

    /// Time to live: 50 ms to 7 days, rounded up to milliseconds.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.options.ttl = ttl;
        self
    }

    /// Waits for another holder at most this long, counted from the call; zero tries once.
    pub fn wait_at_most(mut self, limit: Duration) -> Self {
        self.options.wait = Wait::AtMost(limit);
        self
    }

    /// Waits for another holder without limit; see [`Wait::Forever`].
    pub fn wait_forever(mut self) -> Self {
        self.options.wait = Wait::Forever;
        self
    }

    /// The longest hold: when it is reached the lock is lost, however well it is
    /// renewed. `None` lifts a limit that the client sets.
    pub fn max_hold(mut self, longest: impl Into<Option<Duration>>) -> Self {
        self.options.max_hold = longest.into();
        self
    }

    /// Keeps the lock from others for `delay` after the deadline, when it is freed
    /// by failure. Freed by release, it is free at once.
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.options.lock_delay = delay;
        self
    }

    /// Whether the hold is renewed until its release; `false` gives a fixed lease
    /// that [`LockGuard::extend`] can extend.
    pub fn auto_renew(mut self, renew: bool) -> Self {
        self.options.auto_renew = renew;
        self
    }

    /// A note of at most 1024 bytes, stored with the lock and shown by `inspect`.
    pub fn note(mut self, note: impl Into<Arc<str>>) -> Self {
        self.options.note = Some(note.into());
        self
    }

    /// How often the lock may pass from one waiter of this client to the next before the
    /// server has it back; 0 for never; see [`AcquireOptions::cohort`].
    pub fn cohort(mut self, most: u32) -> Self {
        self.options.cohort = most;
        self
    }

    /// The options as they stand.
    #[must_use]
    pub fn options(&self) -> &AcquireOptions {
        &self.options
    }

    /// Waits for the lock, at most as long as was asked for (30 s if nothing was).
    ///
    /// The wait counts from the call. The future borrows nothing, so that it can
    /// be spawned as it is.
    ///
    /// # Errors
    /// `Timeout` if it was not free to the end of the wait, `Unavailable` if the
    /// service was not reached, `InvalidName`, `InvalidConfig`, `Refused` if the deployment no longer gives
    /// what was required ([`OnDegraded`](crate::OnDegraded)) or has no [cohort](Self::cohort), or what the engine says.
    ///
    /// # Cancel safety
    /// Dropping the future at any point leaves nothing behind: the place in the
    /// queue, and a lock that was granted meanwhile, are undone in the background.
    pub fn acquire(&self) -> impl Future<Output = Result<LockGuard>> + Send + use<> {
        self.clone().pursue_to_the_end(self.shared.clock.now())
    }

    /// Tries once, without waiting for another holder; `None` if there is one.
    ///
    /// # Errors
    /// `Unavailable` if no answer came, `InvalidName`, `InvalidConfig`, `Refused` if the deployment no longer gives
    /// what was required ([`OnDegraded`](crate::OnDegraded)) or has no [cohort](Self::cohort), or what the engine says.
    ///
    /// # Cancel safety
    /// As for [`acquire`](Self::acquire).
    pub fn try_acquire(&self) -> impl Future<Output = Result<Option<LockGuard>>> + Send + use<> {
        self.clone().pursue(true, self.shared.clock.now())
    }

    async fn pursue_to_the_end(self, started: Moment) -> Result<LockGuard> {
        match self.pursue(false, started).await? {
            Some(guard) => Ok(guard),
            None => Err(crate::Error::new(crate::ErrorKind::Engine, "a wait ended without an answer")),
        }
    }

    async fn pursue(self, trying: bool, started: Moment) -> Result<Option<LockGuard>> {
        let shared = &self.shared;
        let operation = if trying { "try_acquire" } else { "acquire" };
        let name = match &self.name {
            Ok(name) => name.clone(),
            Err(refused) => LockName::new(refused).map_err(|e| e.with_operation(operation))?,
        };
        let told = |e: crate::Error| e.with_engine(shared.engine_name()).with_operation(operation).with_name(&name);
        shared.check_ready().map_err(told)?;
        let options = self.options.checked().map_err(told)?;
        check_cohort(&options, &*shared.engine).map_err(told)?;
        let wish = Wish::new(name.clone(), options, trying, started);
        let span = tracing::debug_span!(target: "fencelock", "acquire", engine = shared.engine_name(), name = %name,
            holder = %shared.holder);
        pursuit::acquire(Arc::clone(shared), wish).instrument(span).await.map_err(told)
    }
}

impl fmt::Debug for NamedLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedLock").field("name", &self.name).field("options", &self.options).finish_non_exhaustive()
    }
}
