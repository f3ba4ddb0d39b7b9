//! Lifts an engine that can only try once.

use crate::lanes::Lanes;
use crate::{Attempt, Claim, DistributedLock, Error, ErrorKind, Grant, LocalHold, LockName, Obstacle, Result};
use async_trait::async_trait;
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

/// How long a waiter relies on being told before it asks by itself.
const SAFETY: Duration = Duration::from_secs(5);

/// Waiting by trying again, for engines without a queue of their own.
///
/// Waiters of one name queue locally, first come first served, and only the
/// first talks to the server. It tries when this client frees the name, when a
/// [hint](Hints) says that the name may be free, when the holder's time must
/// have run out, and at least every 5 s; without hints it backs off from 10 ms
/// to 500 ms, with jitter. An engine keeps one of these for its lifetime.
#[derive(Clone, Default)]
pub struct Polling {
    lanes: Lanes,
}

/// A service that can tell when a name may have become free.
#[async_trait]
pub trait Hints: Send + Sync {
    /// Begins to listen for `name`: everything from the moment this returns is heard.
    ///
    /// # Errors
    /// Any; the waiter then backs off as if there were no hints.
    async fn listen(&self, name: &LockName) -> Result<Box<dyn Hint>>;
}

/// One ear for one name; dropping it stops listening.
#[async_trait]
pub trait Hint: Send + Sync {
    /// Ends when the name may be free. A hint too many costs one try, one too few
    /// at most 5 s. An ear that has gone deaf does not end.
    async fn heard(&mut self);
}

/// One try on behalf of a waiter. Every engine's [`try_acquire`](DistributedLock::try_acquire)
/// is one; an engine whose waiters try otherwise, as by leaving a flag at the
/// server, implements this on a type of its own.
#[async_trait]
pub trait Tries: Send + Sync {
    /// Tries once. An id that this leaves dead is replaced with
    /// [`Claim::next_attempt`] or [`Claim::next_attempt_undone`], and the next try
    /// is made with that one.
    ///
    /// # Errors
    /// As [`DistributedLock::try_acquire`].
    async fn try_once(&self, claim: &Claim) -> Result<Attempt>;

    /// Whether the last try left a place in a queue at the server, whose turn [`handed`](Self::handed)
    /// tells: then nothing else has to be listened to. By default there is no queue.
    fn is_queued(&self) -> bool {
        false
    }

    /// Ends when the next try would be granted, or its place in the queue may be lost: that try is
    /// made at once. By default it never ends.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: what was told is told again.
    async fn handed(&self) {
        std::future::pending().await
    }
}

#[async_trait]
impl<E: DistributedLock + ?Sized> Tries for E {
    async fn try_once(&self, claim: &Claim) -> Result<Attempt> {
        self.try_acquire(claim).await
    }
}

impl Polling {
    /// No waiters yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes that this client holds `name`: keep the result in the lease.
    pub fn hold(&self, name: &LockName) -> LocalHold {
        self.lanes.hold(name)
    }

    /// How many names somebody in this client waits for or holds.
    #[must_use]
    pub fn names(&self) -> usize {
        self.lanes.len()
    }

    /// Whether somebody in this client waits for `name` or holds it.
    #[must_use]
    pub fn knows(&self, name: &LockName) -> bool {
        self.lanes.knows(name)
    }

    /// Waits until `engine` grants `claim`, by trying. For [`DistributedLock::acquire`].
    ///
    /// # Errors
    /// What a try failed with, unless waiting may mend it.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the local queue at once; what a try under way
    /// leaves at the server is the caller's to abandon.
    pub async fn acquire<T>(&self, engine: &T, hints: Option<&dyn Hints>, claim: &Claim) -> Result<Grant>
    where
        T: Tries + ?Sized,
    {
        let place = self.lanes.join(claim);
        let Some((_turn, mut held_here)) = place.turn().await else {
            return Err(Error::new(ErrorKind::Engine, "the local queue is closed"));
        };
        let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(500));
        let mut distance = Backoff::new(Duration::from_millis(1), Duration::from_millis(30));
        let mut ear = None;
        if held_here {
            let until = Instant::now() + SAFETY;
            // Asked again each time: it may have been told of a hold before the one that is there now.
            while held_here && tokio::time::timeout_at(until, place.calls.freed.notified()).await.is_ok() {
                held_here = place.held_here();
            }
        }
        loop {
            let begun = Instant::now();
            let pause = match engine.try_once(&claim.latest()).await {
                Ok(Attempt::Granted(grant)) => return Ok(grant),
                Ok(Attempt::Contended { retry_after, holder }) => {
                    place.met(claim, &Obstacle::Held(holder));
                    let is_queued = engine.is_queued();
                    if let (None, Some(hints)) = (&ear, hints.filter(|_| !is_queued)) {
                        ear = hints.listen(claim.name()).await.ok();
                        if ear.is_some() {
                            continue; // what happened before we listened is only seen by asking again
                        }
                    }
                    let own = if is_queued || ear.is_some() || place.held_here() { SAFETY } else { backoff.next() };
                    retry_after.map_or(own, |expiry| own.min(expiry.saturating_add(jitter(Duration::from_millis(10)))))
                }
                Err(e) if e.kind() == ErrorKind::Unavailable => {
                    place.met(claim, &Obstacle::Unreachable(e.to_string().into()));
                    ear = None;
                    backoff.next()
                }
                Err(e) => return Err(e),
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = place.calls.freed.notified() => {}
                () = heard(&mut ear) => {}
                () = engine.handed() => continue,
            }
            if begun.elapsed() > Duration::from_millis(200) {
                distance.reset();
            }
            tokio::select! {
                () = tokio::time::sleep_until(begun + distance.next()) => {}
                () = engine.handed() => {}
            }
        }
    }
}

async fn heard(ear: &mut Option<Box<dyn Hint>>) {
    match ear {
        Some(hint) => hint.heard().await,
        None => std::future::pending().await,
    }
}

/// Pauses that double from the least to the most, each spread over its upper half.
struct Backoff {
    least: Duration,
    most: Duration,
    next: Duration,
}

impl Backoff {
    fn new(least: Duration, most: Duration) -> Self {
        Self { least, most, next: least }
    }

    fn next(&mut self) -> Duration {
        let half = self.next / 2;
        self.next = (self.next * 2).min(self.most);
        half + jitter(half)
    }

    fn reset(&mut self) {
        self.next = self.least;
    }
}

fn jitter(most: Duration) -> Duration {
    most.mul_f64(fastrand::f64())
}

impl fmt::Debug for Polling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Polling").field("names", &self.names()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Terms;
    use std::sync::atomic::{AtomicU32, Ordering};
    use tokio::sync::Notify;

    /// A queue at a server, in which nobody but the first is told of its turn.
    #[derive(Default)]
    struct Queued {
        tries: AtomicU32,
        told: Notify,
    }

    #[async_trait]
    impl Tries for Queued {
        async fn try_once(&self, _claim: &Claim) -> Result<Attempt> {
            match self.tries.fetch_add(1, Ordering::SeqCst) {
                0 => Ok(Attempt::contended(Some(Duration::from_secs(60)), None)),
                _ => Err(Error::new(ErrorKind::Engine, "the end")),
            }
        }

        fn is_queued(&self) -> bool {
            true
        }

        async fn handed(&self) {
            self.told.notified().await;
        }
    }

    #[async_trait]
    impl Hints for Queued {
        async fn listen(&self, name: &LockName) -> Result<Box<dyn Hint>> {
            panic!("{name} was listened to");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whose_turn_it_is_tries_at_once_and_listens_to_nothing_else() {
        let (queued, polling) = (Queued::default(), Polling::new());
        let claim = Terms::new(LockName::new("a").unwrap(), Duration::from_secs(1)).mint().unwrap();
        let begun = Instant::now();
        let telling = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            queued.told.notify_one();
        };
        let (outcome, ()) = tokio::join!(polling.acquire(&queued, Some(&queued), &claim), telling);
        assert_eq!(outcome.unwrap_err().message(), "the end");
        assert_eq!((begun.elapsed(), queued.tries.load(Ordering::SeqCst)), (Duration::from_secs(3), 2));
    }

    #[test]
    fn backoff_grows_to_half_a_second_and_stays() {
        let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(500));
        let pauses: Vec<_> = (0..20).map(|_| backoff.next()).collect();
        assert!(pauses[0] >= Duration::from_millis(5) && pauses[0] <= Duration::from_millis(10));
        assert!(pauses[10..].iter().all(|p| *p >= Duration::from_millis(250) && *p <= Duration::from_millis(500)));
    }
}
