//! What a caller in a scope holds.

use crate::guard::extend_hold;
use crate::hold::Hold;
use crate::seat::Seat;
use crate::{ClaimId, Evidence, FencingToken, LockMonitor, LockName, LossReason, Result};
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// A share in a lock that a [`ReentrantScope`](crate::ReentrantScope) holds; not `Clone`, `Send + Sync + 'static`.
///
/// All guards of one hold have its token, and lose it together.
///
/// # Drop
/// Dropping the last guard of the hold releases the lock in the background, as
/// for a [`LockGuard`](crate::LockGuard); dropping another only counts down.
#[must_use = "dropping the last guard of a scope's lock releases it"]
#[clippy::has_significant_drop]
pub struct ReentrantGuard {
    hold: Arc<Hold>,
    monitor: LockMonitor,
    seat: Seat,
}

impl ReentrantGuard {
    pub(crate) fn new(hold: Arc<Hold>, seat: Seat) -> Self {
        let monitor = LockMonitor { validity: hold.validity.clone(), token: hold.token };
        Self { hold, monitor, seat }
    }

    /// The lock's name.
    #[must_use]
    pub fn name(&self) -> &LockName {
        self.monitor.name()
    }

    /// The fencing token of the hold: the same for all its guards.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.monitor.token()
    }

    /// The random id of the hold, as it stands in traces, and at the server unless the lock was
    /// [passed on](crate::AcquireOptions::cohort) to it.
    #[must_use]
    pub fn claim_id(&self) -> ClaimId {
        self.hold.own_claim().id()
    }

    /// Plain values that prove ownership in the store itself, where the engine has any and the
    /// lock does not [pass on](crate::AcquireOptions::cohort).
    #[must_use]
    pub fn evidence(&self) -> Evidence {
        self.hold.evidence()
    }

    /// How many guards there are of the hold, and calls about to get one; old when it is read.
    #[must_use]
    pub fn shares(&self) -> usize {
        self.seat.count()
    }

    /// Whether the lock may still be believed to be held: reads the clock, does
    /// no I/O, and once false is false for ever.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.monitor.is_held()
    }

    /// Whether it is held, but contact is broken or a renewal is overdue.
    #[must_use]
    pub fn in_jeopardy(&self) -> bool {
        self.monitor.in_jeopardy()
    }

    /// How long it may still be believed if no renewal succeeds; zero once lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.monitor.remaining()
    }

    /// Ends when the lock is lost; never for the scope's own release.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn lost(&self) -> LossReason {
        self.monitor.lost().await
    }

    /// A view of the hold for other tasks. It ends with the hold, not with this guard.
    #[must_use]
    pub fn monitor(&self) -> LockMonitor {
        self.monitor.clone()
    }

    /// Runs `work` for as long as the lock is held, and drops it when the lock is
    /// lost; see [`LockGuard::while_held`](crate::LockGuard::while_held).
    ///
    /// # Errors
    /// `Lost` if the lock was lost before `work` ended.
    ///
    /// # Cancel safety
    /// Dropping the future drops `work`; the lock stays held.
    pub async fn while_held<F: Future>(&self, work: F) -> Result<F::Output> {
        self.monitor.while_held(work).await
    }

    /// Gives a fixed lease at least `ttl`, counted from now, for all guards of the
    /// hold; see [`LockGuard::extend`](crate::LockGuard::extend).
    ///
    /// # Errors
    /// As for [`LockGuard::extend`](crate::LockGuard::extend).
    ///
    /// # Cancel safety
    /// Dropping the future leaves the old end in force here; the server may keep the lock longer.
    pub async fn extend(&self, ttl: Duration) -> Result<()> {
        extend_hold(self.seat.shared(), Arc::clone(&self.hold), ttl).await
    }

    /// Gives this share back, and with the last one the lock; says whether it was still ours.
    ///
    /// # Errors
    /// `Lost` if the hold had been lost, for every guard of it; for the last guard
    /// also as for [`LockGuard::release`](crate::LockGuard::release).
    ///
    /// # Cancel safety
    /// Dropping the future does not stop the release; it goes on in the background.
    pub async fn release(self) -> Result<()> {
        let Self { hold, monitor, seat } = self;
        let reason = if monitor.is_held() { None } else { Some(hold.lost_reason()) };
        match (seat.leave(), reason) {
            (Some(guard), _) => guard.release().await,
            (None, None) => Ok(()),
            (None, Some(reason)) => Err(hold.lost(reason).with_operation("release")),
        }
    }
}

impl fmt::Debug for ReentrantGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReentrantGuard")
            .field("name", self.name())
            .field("token", &self.token())
            .field("shares", &self.shares())
            .field("validity", &self.monitor.validity)
            .finish_non_exhaustive()
    }
}
