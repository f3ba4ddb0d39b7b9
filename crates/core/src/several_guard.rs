//! What a caller of several names holds.

use crate::client::Shared;
use crate::hold::Hold;
use crate::{Ended, Error, ErrorKind, FencingToken, LockGuard, LockMonitor, LockName, LossReason, Result};
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

/// Several held locks that are one: losing one loses all. Not `Clone`, `Send + Sync + 'static`.
///
/// Each lock has a [token](Self::token) of its own; check each where its data is.
///
/// # Drop
/// Dropping the guard releases all of them in the background, as for a [`LockGuard`].
#[must_use = "dropping the guard releases the locks"]
#[clippy::has_significant_drop]
pub struct SeveralGuard {
    /// By name.
    guards: Vec<LockGuard>,
    monitor: SeveralMonitor,
}

impl SeveralGuard {
    pub(crate) fn new(guards: Vec<LockGuard>, shared: &Shared) -> Self {
        let monitor = SeveralMonitor { parts: guards.iter().map(LockGuard::monitor).collect() };
        if guards.len() > 1 {
            let holds = guards.iter().filter_map(LockGuard::hold).map(|hold| Arc::downgrade(&hold)).collect();
            shared.home.spawn(lose_together(holds, monitor.clone()));
        }
        Self { guards, monitor }
    }

    /// The names, sorted by their bytes.
    pub fn names(&self) -> impl Iterator<Item = &LockName> {
        self.guards.iter().map(LockGuard::name)
    }

    /// The fencing token of each lock, by name.
    pub fn tokens(&self) -> impl Iterator<Item = (&LockName, FencingToken)> {
        self.guards.iter().map(|guard| (guard.name(), guard.token()))
    }

    /// The fencing token of the lock called `name`; `None` if it is none of these.
    #[must_use]
    pub fn token(&self, name: &str) -> Option<FencingToken> {
        self.guards.iter().find(|guard| guard.name().as_str() == name).map(LockGuard::token)
    }

    /// Whether all of them may still be believed to be held: reads the clock, does
    /// no I/O, and once false is false for ever.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.monitor.is_held()
    }

    /// Whether they are held, but contact is broken or a renewal is overdue for one of them.
    #[must_use]
    pub fn in_jeopardy(&self) -> bool {
        self.monitor.in_jeopardy()
    }

    /// How long all of them may still be believed if no renewal succeeds; zero once lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.monitor.remaining()
    }

    /// Ends when one of them is lost, and all with it; never for our own release.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn lost(&self) -> LossReason {
        self.monitor.lost().await
    }

    /// A view of the whole for other tasks.
    #[must_use]
    pub fn monitor(&self) -> SeveralMonitor {
        self.monitor.clone()
    }

    /// Runs `work` for as long as all are held, and drops it when one is lost; see
    /// [`LockGuard::while_held`].
    ///
    /// # Errors
    /// `Lost` if they were lost before `work` ended.
    ///
    /// # Cancel safety
    /// Dropping the future drops `work`; the locks stay held.
    pub async fn while_held<F: Future>(&self, work: F) -> Result<F::Output> {
        let lost = self.monitor.lost();
        tokio::pin!(lost, work);
        poll_fn(|cx| {
            // Reads the clocks even if nobody has told of the loss yet.
            let _ = self.is_held();
            if let Poll::Ready(reason) = lost.as_mut().poll(cx) {
                let message = format!("one of the locks was lost, and all with it: {reason}");
                return Poll::Ready(Err(Error::new(ErrorKind::Lost, message)));
            }
            work.as_mut().poll(cx).map(Ok)
        })
        .await
    }

    /// Gives all of them back at the same time, and says whether they were still ours.
    ///
    /// # Errors
    /// `Lost` if one of them had been lost, `Unavailable` if no answer came for one;
    /// those are retried in the background. The others are released all the same.
    ///
    /// # Cancel safety
    /// Dropping the future does not stop the releases; they go on in the background.
    pub async fn release(self) -> Result<()> {
        release_all(self.guards).await
    }
}

impl fmt::Debug for SeveralGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SeveralGuard").field("guards", &self.guards).finish_non_exhaustive()
    }
}

/// A view of several holds that are one, to hand to other tasks. `Clone + Send +
/// 'static`; it neither keeps the locks nor releases them when dropped.
#[derive(Clone, Debug)]
pub struct SeveralMonitor {
    parts: Arc<[LockMonitor]>,
}

impl SeveralMonitor {
    /// The views of the single holds, by name.
    pub fn parts(&self) -> impl Iterator<Item = &LockMonitor> {
        self.parts.iter()
    }

    /// Whether all of them may still be believed to be held: reads the clock, does
    /// no I/O, and once false is false for ever.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.parts.iter().all(LockMonitor::is_held)
    }

    /// Whether they are held, but contact is broken or a renewal is overdue for one of them.
    #[must_use]
    pub fn in_jeopardy(&self) -> bool {
        self.is_held() && self.parts.iter().any(LockMonitor::in_jeopardy)
    }

    /// How long all of them may still be believed if no renewal succeeds; zero once lost or released.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.parts.iter().map(LockMonitor::remaining).min().unwrap_or_default()
    }

    /// Ends when one of them is lost, and all with it; never for their own release.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn lost(&self) -> LossReason {
        first_loss_of(&*self.parts).await
    }

    /// Ends when one of them is lost, or the release of all has been answered.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn ended(&self) -> Ended {
        first_loss_or_all_released(&*self.parts).await
    }
}

type Ending<'m> = Pin<Box<dyn Future<Output = Ended> + Send + 'm>>;

fn pending<'m>(parts: impl IntoIterator<Item = &'m LockMonitor>) -> Vec<Ending<'m>> {
    parts.into_iter().map(|part| Box::pin(part.ended()) as Ending<'m>).collect()
}

/// Never ends if all are released.
async fn first_loss_of<'m>(parts: impl IntoIterator<Item = &'m LockMonitor>) -> LossReason {
    match first_loss_or_all_released(parts).await {
        Ended::Lost(reason) => reason,
        Ended::Released => std::future::pending().await,
    }
}

async fn first_loss_or_all_released<'m>(parts: impl IntoIterator<Item = &'m LockMonitor>) -> Ended {
    let mut left = pending(parts);
    poll_fn(|cx| {
        let mut at = 0;
        while let Some(part) = left.get_mut(at) {
            match part.as_mut().poll(cx) {
                Poll::Ready(Ended::Lost(reason)) => return Poll::Ready(Ended::Lost(reason)),
                Poll::Ready(Ended::Released) => drop(left.swap_remove(at)),
                Poll::Pending => at += 1,
            }
        }
        if left.is_empty() { Poll::Ready(Ended::Released) } else { Poll::Pending }
    })
    .await
}

/// Ends when one of these is lost.
pub(crate) async fn first_loss(guards: &[LockGuard]) -> LossReason {
    let monitors: Vec<_> = guards.iter().map(LockGuard::monitor).collect();
    first_loss_of(&monitors).await
}

/// Releases all at the same time, and waits for the last.
pub(crate) async fn release_all(guards: Vec<LockGuard>) -> Result<()> {
    let mut left: Vec<_> = guards.into_iter().map(|guard| Box::pin(guard.release())).collect();
    let mut worst: Result<()> = Ok(());
    poll_fn(|cx| {
        let mut at = 0;
        while let Some(release) = left.get_mut(at) {
            match release.as_mut().poll(cx) {
                Poll::Ready(outcome) => {
                    drop(left.swap_remove(at));
                    // That one was lost says more than that the fate of another is not known yet.
                    match (&worst, &outcome) {
                        (Ok(()), _) => worst = outcome,
                        (Err(_), Err(e)) if e.kind() == ErrorKind::Lost => worst = outcome,
                        _ => {}
                    }
                }
                Poll::Pending => at += 1,
            }
        }
        if left.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    worst
}

/// When one is lost, so are the others: nobody may go on holding them for work that has stopped.
async fn lose_together(holds: Vec<Weak<Hold>>, monitor: SeveralMonitor) {
    if let Ended::Lost(reason) = monitor.ended().await {
        holds.iter().filter_map(Weak::upgrade).for_each(|hold| hold.lose(reason));
    }
}
