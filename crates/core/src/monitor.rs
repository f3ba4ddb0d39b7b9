//! Watching a hold without owning it.

use crate::{Ended, Error, ErrorKind, FencingToken, LockName, LossReason, Moment, Result, Validity};
use std::task::Poll;
use std::time::Duration;

/// A view of one hold, to hand to other tasks. `Clone + Send + 'static`; it
/// neither keeps the lock nor releases it when dropped.
#[derive(Clone, Debug)]
pub struct LockMonitor {
    pub(crate) validity: Validity,
    pub(crate) token: FencingToken,
}

impl LockMonitor {
    /// The lock's name.
    #[must_use]
    pub fn name(&self) -> &LockName {
        self.validity.claim().name()
    }

    /// The hold's fencing token.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// Whether the lock may still be believed to be held: reads the clock, does
    /// no I/O, and once false is false for ever.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.validity.is_held()
    }

    /// Whether it is held, but contact is broken or a renewal is overdue.
    #[must_use]
    pub fn in_jeopardy(&self) -> bool {
        self.validity.in_jeopardy()
    }

    /// How long it may still be believed if no renewal succeeds; zero once lost or released.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.validity.remaining()
    }

    /// The moment, on the client's clock, from which it may no longer be believed
    /// if no renewal succeeds; `None` once lost or released.
    #[must_use]
    pub fn deadline(&self) -> Option<Moment> {
        self.validity.deadline()
    }

    /// Ends when the lock is lost; never when it is released by its own guard.
    ///
    /// Told within 5 ms of the deadline, and within 250 ms after the machine was
    /// suspended. A loss in the past is told at once.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn lost(&self) -> LossReason {
        match self.ended().await {
            Ended::Lost(reason) => reason,
            Ended::Released => std::future::pending().await,
        }
    }

    /// Ends when the lock is lost or its release has been answered.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn ended(&self) -> Ended {
        self.validity.until_ended().await
    }

    /// Runs `work` for as long as the lock is held; for guards, whose hold is not released meanwhile.
    pub(crate) async fn while_held<F: Future>(&self, work: F) -> Result<F::Output> {
        let lost = self.lost();
        tokio::pin!(lost, work);
        std::future::poll_fn(|cx| {
            // Reads the clock even if nobody has told of the loss yet.
            let _ = self.is_held();
            if let Poll::Ready(reason) = lost.as_mut().poll(cx) {
                return Poll::Ready(Err(self.lost_because(reason)));
            }
            work.as_mut().poll(cx).map(Ok)
        })
        .await
    }

    pub(crate) fn lost_because(&self, reason: LossReason) -> Error {
        Error::new(ErrorKind::Lost, format!("the lock was lost: {reason}")).with_name(self.name())
    }
}
