//! Re-entrance: nested calls of one job share one hold.

use crate::client::Shared;
use crate::pursuit::Wish;
use crate::seat::{Scope, seated};
use crate::{AcquireOptions, Error, ErrorKind, LockName, Moment, ReentrantGuard, Result, Wait};
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tracing::Instrument;

/// One job's locks, where calls that are nested in one another may ask for a name again.
///
/// Made by [`LockClient::reentrant`](crate::LockClient::reentrant); cloning gives
/// the same scope, and so does asking the same client for a scope of the same
/// name while any part of the first lives. Within a scope, acquiring a name that
/// the scope holds answers at once, without asking the service, with the same
/// [`token`](ReentrantGuard::token) and a shared count: the lock is released with
/// the last guard. Acquires that come while the first is under way join it, each
/// with a wait limit of its own; giving one of them up does not end the others.
/// When the hold is lost all its guards have lost it, and the next acquire is a
/// new hold with a larger token.
///
/// A scope does **not** exclude its own tasks from one another: two tasks that
/// acquire one name in one scope both have it. What a job runs side by side needs
/// a scope for each, or an ordinary lock, or a mutex.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> fencelock_core::Result<()> {
/// # use fencelock_core::{LockClient, memory::MemoryLock};
/// # let locks = LockClient::new(std::sync::Arc::new(MemoryLock::new()))?;
/// let job = locks.reentrant("req-7f3a");
/// let outer = job.acquire("orders/1001").await?;
/// let nested = job.acquire("orders/1001").await?; // at once
/// assert_eq!(outer.token(), nested.token());
/// outer.release().await?;
/// assert!(nested.is_held() && locks.try_acquire("orders/1001").await?.is_none());
/// nested.release().await?; // the last: now it is free
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ReentrantScope {
    scope: Arc<Scope>,
}

impl ReentrantScope {
    pub(crate) fn new(shared: &Arc<Shared>, id: &str) -> Self {
        Self { scope: Scope::of(shared, id) }
    }

    /// What the scope is called. It stands as the note beside its locks, unless another is set.
    #[must_use]
    pub fn id(&self) -> &str {
        self.scope.id()
    }

    /// How many names this scope holds or asks for.
    #[must_use]
    pub fn names(&self) -> usize {
        self.scope.len()
    }

    /// The lock called `name`, with options to set before either verb.
    pub fn named(&self, name: &str) -> ReentrantLock {
        let name = LockName::new(name).map_err(|_| name.into());
        ReentrantLock { scope: Arc::clone(&self.scope), name, asked: Asked::default() }
    }

    /// Waits for the lock with the client's options; at once if this scope holds it.
    ///
    /// # Errors
    /// As for [`ReentrantLock::acquire`].
    ///
    /// # Cancel safety
    /// Dropping the future at any point leaves nothing behind and ends nobody else's wait.
    pub fn acquire(&self, name: &str) -> impl Future<Output = Result<ReentrantGuard>> + Send + use<> {
        self.named(name).acquire()
    }

    /// Tries once; `None` if somebody outside this scope has it.
    ///
    /// # Errors
    /// As for [`ReentrantLock::try_acquire`].
    ///
    /// # Cancel safety
    /// As for [`acquire`](Self::acquire).
    pub fn try_acquire(&self, name: &str) -> impl Future<Output = Result<Option<ReentrantGuard>>> + Send + use<> {
        self.named(name).try_acquire()
    }
}

impl fmt::Debug for ReentrantScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReentrantScope").field("id", &self.id()).field("names", &self.names()).finish_non_exhaustive()
    }
}

/// What one call set; what it did not set is the client's, and fits any hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    ttl: Option<Duration>,
    wait: Option<Wait>,
    lock_delay: Option<Duration>,
    max_hold: Option<Option<Duration>>,
    auto_renew: Option<bool>,
    note: Option<Arc<str>>,
}

impl Asked {
    /// The whole of the options, for a hold that this call is the first to ask for.
    fn over(&self, defaults: &AcquireOptions, scope: &Arc<str>) -> AcquireOptions {
        let mut options = defaults.clone();
        options.ttl = self.ttl.unwrap_or(options.ttl);
        options.wait = self.wait.unwrap_or(options.wait);
        options.lock_delay = self.lock_delay.unwrap_or(options.lock_delay);
        options.max_hold = self.max_hold.unwrap_or(options.max_hold);
        options.auto_renew = self.auto_renew.unwrap_or(options.auto_renew);
        options.note = self.note.clone().or(options.note).or_else(|| Some(Arc::clone(scope)));
        options
    }

    /// Whether a hold on these terms gives all that this call asks for.
    pub(crate) fn fits(&self, hold: &AcquireOptions) -> Result<()> {
        let refused = |what: String| {
            let message = format!("the scope's hold of this name does not fit: {what}");
            Err(Error::new(ErrorKind::InvalidConfig, message))
        };
        match self.ttl {
            Some(ttl) if ttl > hold.ttl => return refused(format!("its ttl is {:?}, not {ttl:?}", hold.ttl)),
            _ => {}
        }
        match self.lock_delay {
            Some(delay) if delay > hold.lock_delay => {
                return refused(format!("its lock delay is {:?}, not {delay:?}", hold.lock_delay));
            }
            _ => {}
        }
        match (self.max_hold, hold.max_hold) {
            (Some(Some(most)), Some(limit)) if limit <= most => {}
            (Some(asked), limit) if asked != limit => {
                let said = |limit: Option<Duration>| limit.map_or("none".to_owned(), |limit| format!("{limit:?}"));
                return refused(format!("its longest hold is {}, not {}", said(limit), said(asked)));
            }
            _ => {}
        }
        match self.auto_renew {
            Some(renew) if renew != hold.auto_renew => {
                refused(if renew { "it is a fixed lease" } else { "it renews itself" }.to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// One lock in a [`ReentrantScope`], with its options: owned, reusable and cheap to clone.
///
/// The first acquire of a name decides how it is held. What a nested one **sets**
/// must fit that hold, or it is refused with `InvalidConfig`: its `ttl` and
/// `lock_delay` may not be longer, its `max_hold` not shorter, than those of the
/// hold, and `auto_renew` must be the same. What it does not set fits, and so do
/// any wait limit and any note (the first one's note stays with the lock).
#[derive(Clone)]
#[must_use = "names a lock but does not acquire it"]
pub struct ReentrantLock {
    scope: Arc<Scope>,
    name: std::result::Result<LockName, Arc<str>>,
    asked: Asked,
}

impl ReentrantLock {
    /// Time to live: 50 ms to 7 days, rounded up to milliseconds.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.asked.ttl = Some(ttl);
        self
    }

    /// Waits for another holder at most this long, counted from the call; zero tries once.
    pub fn wait_at_most(mut self, limit: Duration) -> Self {
        self.asked.wait = Some(Wait::AtMost(limit));
        self
    }

    /// Waits for another holder without limit; see [`Wait::Forever`].
    pub fn wait_forever(mut self) -> Self {
        self.asked.wait = Some(Wait::Forever);
        self
    }

    /// The longest hold, counted from the first acquire; `None` asks for none.
    pub fn max_hold(mut self, longest: impl Into<Option<Duration>>) -> Self {
        self.asked.max_hold = Some(longest.into());
        self
    }

    /// Keeps the lock from others for `delay` after the deadline, when it is freed by failure.
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.asked.lock_delay = Some(delay);
        self
    }

    /// Whether the hold is renewed until its release; `false` gives a fixed lease
    /// that [`ReentrantGuard::extend`] can extend.
    pub fn auto_renew(mut self, renew: bool) -> Self {
        self.asked.auto_renew = Some(renew);
        self
    }

    /// A note of at most 1024 bytes, stored with the lock; the scope's name unless set.
    pub fn note(mut self, note: impl Into<Arc<str>>) -> Self {
        self.asked.note = Some(note.into());
        self
    }

    /// Waits for the lock, at most as long as was asked for; at once if the scope holds it.
    ///
    /// # Errors
    /// As for [`NamedLock::acquire`](crate::NamedLock::acquire), and `InvalidConfig`
    /// if the scope's hold does not fit what this call sets.
    ///
    /// # Cancel safety
    /// Dropping the future at any point leaves nothing behind. Others that wait for
    /// the same name in this scope wait on; when the last of them is gone, the
    /// attempt is undone in the background.
    pub fn acquire(&self) -> impl Future<Output = Result<ReentrantGuard>> + Send + use<> {
        let pursued = self.clone().pursue(false, self.scope.shared().clock.now());
        async move {
            match pursued.await? {
                Some(guard) => Ok(guard),
                None => Err(Error::new(ErrorKind::Engine, "a wait ended without an answer")),
            }
        }
    }

    /// Tries once, without waiting for a holder outside the scope; `None` if there is one.
    ///
    /// While another call of the scope waits for the name, this one answers as
    /// soon as it is known who has it.
    ///
    /// # Errors
    /// As for [`NamedLock::try_acquire`](crate::NamedLock::try_acquire), and `InvalidConfig`
    /// if the scope's hold does not fit what this call sets.
    ///
    /// # Cancel safety
    /// As for [`acquire`](Self::acquire).
    pub fn try_acquire(&self) -> impl Future<Output = Result<Option<ReentrantGuard>>> + Send + use<> {
        self.clone().pursue(true, self.scope.shared().clock.now())
    }

    async fn pursue(self, trying: bool, started: Moment) -> Result<Option<ReentrantGuard>> {
        let shared = Arc::clone(self.scope.shared());
        let operation = if trying { "try_acquire" } else { "acquire" };
        let name = match &self.name {
            Ok(name) => name.clone(),
            Err(refused) => LockName::new(refused).map_err(|e| e.with_operation(operation))?,
        };
        let told = |e: Error| e.with_engine(shared.engine_name()).with_operation(operation).with_name(&name);
        shared.check_ready().map_err(told)?;
        let options = self.asked.over(&shared.defaults, self.scope.id_arc()).checked().map_err(told)?;
        let wish = Wish::new(name.clone(), options, trying, started);
        let span = tracing::debug_span!(target: "fencelock", "acquire", engine = shared.engine_name(), name = %name,
            holder = %shared.holder, scope = self.scope.id());
        seated(Arc::clone(&self.scope), wish, self.asked).instrument(span).await.map_err(told)
    }
}

impl fmt::Debug for ReentrantLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReentrantLock").field("name", &self.name).field("asked", &self.asked).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(change: impl Fn(&mut Asked)) -> Asked {
        let mut asked = Asked::default();
        change(&mut asked);
        asked
    }

    #[test]
    fn what_is_not_set_fits_and_what_is_set_is_no_more_than_the_hold_gives() {
        let sec = Duration::from_secs;
        let hold = AcquireOptions::default().with_ttl(sec(10)).with_lock_delay(sec(2)).with_max_hold(sec(60));
        for fits in [
            Asked::default(),
            asked(|a| a.ttl = Some(sec(10))),
            asked(|a| a.lock_delay = Some(sec(1))),
            asked(|a| a.max_hold = Some(Some(sec(60)))),
            asked(|a| a.max_hold = Some(Some(sec(61)))),
            asked(|a| a.auto_renew = Some(true)),
            asked(|a| (a.note, a.wait) = (Some("other".into()), Some(Wait::Forever))),
        ] {
            assert!(fits.fits(&hold).is_ok(), "{fits:?}");
        }
        for odd in [
            asked(|a| a.ttl = Some(sec(11))),
            asked(|a| a.lock_delay = Some(sec(3))),
            asked(|a| a.max_hold = Some(Some(sec(59)))),
            asked(|a| a.max_hold = Some(None)),
            asked(|a| a.auto_renew = Some(false)),
        ] {
            assert_eq!(odd.fits(&hold).unwrap_err().kind(), ErrorKind::InvalidConfig, "{odd:?}");
        }
        let endless = AcquireOptions::default();
        assert!(asked(|a| a.max_hold = Some(None)).fits(&endless).is_ok());
        assert!(asked(|a| a.max_hold = Some(Some(sec(1)))).fits(&endless).is_err());
    }
}
