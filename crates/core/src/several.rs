//! Several names at once, all or nothing.

use crate::client::Shared;
use crate::driven::{Driven, Manner};
use crate::pursuit::{self, Wish};
use crate::several_guard::{first_loss, release_all};
use crate::{AcquireOptions, Error, ErrorKind, LockGuard, LockName, Moment, Result, SeveralGuard, Wait};
use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tracing::{Instrument, Span};

/// Several locks of a client that are acquired together: owned, reusable and cheap to clone.
///
/// Made by [`LockClient::all`](crate::LockClient::all). Names are sorted and those
/// that are given twice count once. The locks are acquired one after the other in
/// the order of their bytes, which every program that uses `all` keeps to, so that
/// no two of them wait for each other for ever; what is acquired already is kept
/// alive meanwhile. The wait limit is one for the whole, counted from the call.
/// If one of them is lost while the others are waited for, all are given back and
/// acquired anew within the same limit.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> fencelock_core::Result<()> {
/// # use fencelock_core::{LockClient, memory::MemoryLock};
/// # let locks = LockClient::new(std::sync::Arc::new(MemoryLock::new()))?;
/// let both = locks.all(["accounts/7", "accounts/3"]).acquire().await?;
/// for (name, token) in both.tokens() {
///     println!("{name}: {token}");
/// }
/// both.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "names locks but does not acquire them"]
pub struct SeveralLocks {
    shared: Arc<Shared>,
    names: Arc<[Box<str>]>,
    options: AcquireOptions,
}

impl SeveralLocks {
    pub(crate) fn new<N: AsRef<str>>(shared: &Arc<Shared>, names: impl IntoIterator<Item = N>) -> Self {
        let names = names.into_iter().map(|name| name.as_ref().into()).collect();
        Self { shared: Arc::clone(shared), names, options: shared.defaults.clone() }
    }

    /// Time to live of each: 50 ms to 7 days, rounded up to milliseconds.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.options.ttl = ttl;
        self
    }

    /// Waits at most this long for all of them together, counted from the call; zero tries once.
    pub fn wait_at_most(mut self, limit: Duration) -> Self {
        self.options.wait = Wait::AtMost(limit);
        self
    }

    /// Waits without limit; see [`Wait::Forever`].
    pub fn wait_forever(mut self) -> Self {
        self.options.wait = Wait::Forever;
        self
    }

    /// The longest hold, counted for each from its own grant; when the first
    /// reaches it, all are lost. It should be longer than the wait.
    pub fn max_hold(mut self, longest: impl Into<Option<Duration>>) -> Self {
        self.options.max_hold = longest.into();
        self
    }

    /// Keeps each from others for `delay` after its deadline, when it is freed by failure.
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.options.lock_delay = delay;
        self
    }

    /// A note of at most 1024 bytes, stored with each and shown by `inspect`.
    pub fn note(mut self, note: impl Into<Arc<str>>) -> Self {
        self.options.note = Some(note.into());
        self
    }

    /// The options as they stand.
    #[must_use]
    pub fn options(&self) -> &AcquireOptions {
        &self.options
    }

    /// Waits for all of them, at most as long as was asked for (30 s if nothing was).
    ///
    /// # Errors
    /// `Timeout` if one was not free to the end of the wait,
    /// `InvalidConfig` if there are no names, or as for
    /// [`NamedLock::acquire`](crate::NamedLock::acquire). Whatever was acquired is
    /// given back in the background then.
    ///
    /// # Cancel safety
    /// Dropping the future at any point leaves nothing behind: what was acquired is
    /// released, and what was asked for undone, in the background.
    pub fn acquire(&self) -> impl Future<Output = Result<SeveralGuard>> + Send + use<> {
        let pursued = self.clone().pursue(false, self.shared.clock.now());
        async move {
            match pursued.await? {
                Some(guard) => Ok(guard),
                None => Err(Error::new(ErrorKind::Engine, "a wait ended without an answer")),
            }
        }
    }

    /// Tries each once; `None`, with nothing held, if somebody else has one of them.
    ///
    /// # Errors
    /// As for [`acquire`](Self::acquire), but `Timeout`.
    ///
    /// # Cancel safety
    /// As for [`acquire`](Self::acquire).
    pub fn try_acquire(&self) -> impl Future<Output = Result<Option<SeveralGuard>>> + Send + use<> {
        self.clone().pursue(true, self.shared.clock.now())
    }

    async fn pursue(self, trying: bool, started: Moment) -> Result<Option<SeveralGuard>> {
        let shared = self.shared;
        let operation = if trying { "try_acquire" } else { "acquire" };
        let told = |e: Error| e.with_engine(shared.engine_name()).with_operation(operation);
        let names: BTreeSet<_> = self.names.iter().map(LockName::new).collect::<Result<_>>().map_err(told)?;
        if names.is_empty() {
            return Err(told(Error::new(ErrorKind::InvalidConfig, "there are no names to acquire")));
        }
        shared.check_ready().map_err(told)?;
        let options = self.options.checked().map_err(told)?;
        let span = tracing::debug_span!(target: "fencelock", "acquire_all", engine = shared.engine_name(),
            names = names.len(), holder = %shared.holder);
        let trace = Span::current();
        let names = names.into_iter().collect();
        let whole = Whole { shared: Arc::clone(&shared), names, options, trying, started, trace };
        whole.acquire().instrument(span).await.map_err(told)
    }
}

impl fmt::Debug for SeveralLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SeveralLocks")
            .field("names", &self.names)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// One acquisition of all.
struct Whole {
    shared: Arc<Shared>,
    names: Vec<LockName>,
    options: AcquireOptions,
    trying: bool,
    started: Moment,
    trace: Span,
}

/// What one round through the names came to.
enum Round {
    All(Vec<LockGuard>),
    Contended,
    /// One that had been acquired was lost while another was waited for.
    LostOne(Vec<LockGuard>),
}

impl Whole {
    async fn acquire(self) -> Result<Option<SeveralGuard>> {
        loop {
            match self.round().await? {
                Round::All(guards) => return Ok(Some(SeveralGuard::new(guards, &self.shared))),
                Round::Contended => return Ok(None),
                Round::LostOne(guards) => {
                    // Given back first, or the next round would wait for this one.
                    self.give_back(guards).await?;
                    if self.trying {
                        let message = "one of the locks was lost while the others were tried";
                        return Err(Error::new(ErrorKind::Unavailable, message));
                    }
                }
            }
        }
    }

    /// Waits for the releases, but no longer than for the locks: they go on without us.
    async fn give_back(&self, guards: Vec<LockGuard>) -> Result<()> {
        let released = release_all(guards);
        let (Wait::AtMost(limit), false) = (self.options.wait, self.trying) else {
            let _ = released.await;
            return Ok(());
        };
        let left = limit.saturating_sub(self.shared.clock.now().since(self.started));
        let time_up = async move {
            tokio::time::sleep(left).await;
            Ok(())
        };
        let time_up = Driven::new(&self.shared, Manner::Waiting, time_up);
        tokio::select! {
            biased;
            _ = released => Ok(()),
            _ = time_up => {
                let message = "one was lost while another was waited for, and the rest was not given back in time";
                Err(Error::new(ErrorKind::Timeout, message))
            }
        }
    }

    async fn round(&self) -> Result<Round> {
        let mut guards = Vec::with_capacity(self.names.len());
        for name in &self.names {
            self.check_time(guards.last())?;
            let mut wish = Wish::new(name.clone(), self.options.clone(), self.trying, self.started);
            wish.trace = self.trace.clone();
            let next = pursuit::acquire(Arc::clone(&self.shared), wish);
            let lost = first_loss(&guards);
            let granted = tokio::select! {
                biased;
                granted = next => granted.map_err(|e| e.with_name(name))?,
                _ = lost => return Ok(Round::LostOne(guards)),
            };
            match granted {
                Some(guard) => guards.push(guard),
                None => {
                    let _ = release_all(guards).await;
                    return Ok(Round::Contended);
                }
            }
        }
        let all = guards.iter().all(LockGuard::is_held);
        Ok(if all { Round::All(guards) } else { Round::LostOne(guards) })
    }

    /// Whether there is time to ask for one more after `last`.
    fn check_time(&self, last: Option<&LockGuard>) -> Result<()> {
        let waited = self.shared.clock.now().since(self.started);
        match (self.options.wait, last) {
            (Wait::AtMost(limit), Some(last)) if !self.trying && !limit.is_zero() && waited >= limit => {
                let message = format!("the wait for all of them was over when {} was granted", last.name());
                Err(Error::new(ErrorKind::Timeout, message))
            }
            _ => Ok(()),
        }
    }
}
