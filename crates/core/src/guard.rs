//! What a caller holds.

use crate::client::Shared;
use crate::driven::{Driven, Manner};
use crate::hold::{Hold, Releasing, finish_release};
use crate::ledger::Errand;
use crate::options::check_ttl;
use crate::{ClaimId, Error, ErrorKind, Evidence, FencingToken, LockMonitor, LockName, LossReason, Moment, Result};
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// A held lock. One type for all engines; not `Clone`, `Send + Sync + 'static`.
///
/// The lock is kept alive until the guard is released or dropped, until it is
/// lost, or until its `max_hold`. Holding a guard is not proof of holding the
/// lock: ask [`is_held`](Self::is_held) before each effect, or better, let the
/// guarded resource check [`token`](Self::token) (see [`Gate`](crate::Gate)).
///
/// # Drop
/// Dropping the guard releases the lock in the background: it never blocks,
/// spawns or panics, and works on any thread. If the client's runtime has gone,
/// the lease runs out instead. To know that the release was done, call
/// [`release`](Self::release), or [`LockClient::close`](crate::LockClient::close) at the end.
#[must_use = "dropping the guard releases the lock"]
#[clippy::has_significant_drop]
pub struct LockGuard {
    hold: Option<Arc<Hold>>,
    monitor: LockMonitor,
    shared: Arc<Shared>,
}

impl LockGuard {
    pub(crate) fn new(hold: Arc<Hold>, shared: Arc<Shared>, now: Moment) -> Self {
        let monitor = LockMonitor { validity: hold.validity.clone(), token: hold.token };
        hold.schedule(now);
        Self { hold: Some(hold), monitor, shared }
    }

    /// The lock's name.
    #[must_use]
    pub fn name(&self) -> &LockName {
        self.monitor.name()
    }

    /// The fencing token of this hold: larger than that of every hold of this name before it
    /// (for one that was [passed on](crate::AcquireOptions::cohort), unless the lock had been taken away unheard).
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.monitor.token
    }

    /// The random id of this hold, as it stands in traces, and at the server unless the lock was
    /// [passed on](crate::AcquireOptions::cohort) to it.
    #[must_use]
    pub fn claim_id(&self) -> ClaimId {
        self.monitor.validity.own_claim().id()
    }

    /// Plain values that prove ownership in the store itself, where the engine has any and the
    /// lock does not [pass on](crate::AcquireOptions::cohort).
    #[must_use]
    pub fn evidence(&self) -> Evidence {
        self.hold.as_ref().map(|hold| hold.evidence()).unwrap_or_default()
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

    /// Ends when the lock is lost; never for our own release.
    ///
    /// Told within 5 ms of the deadline, and within 250 ms after the machine was
    /// suspended. A loss in the past is told at once.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn lost(&self) -> LossReason {
        self.monitor.lost().await
    }

    /// A view of this hold for other tasks: `lost()`, `ended()`, `is_held()`.
    #[must_use]
    pub fn monitor(&self) -> LockMonitor {
        self.monitor.clone()
    }

    /// Runs `work` for as long as the lock is held, and drops it when the lock is lost.
    ///
    /// `work` is never polled after the deadline. What it has spawned on other
    /// tasks or threads, or is blocking its own thread on, cannot be stopped.
    ///
    /// # Errors
    /// `Lost` if the lock was lost before `work` ended.
    ///
    /// # Cancel safety
    /// Dropping the future drops `work`; the lock stays held.
    pub async fn while_held<F: Future>(&self, work: F) -> Result<F::Output> {
        self.monitor.while_held(work).await
    }

    /// What the guard stands for; none once its release has begun.
    pub(crate) fn hold(&self) -> Option<Arc<Hold>> {
        self.hold.clone()
    }

    /// Gives a fixed lease (`auto_renew(false)`) at least `ttl`, counted from now.
    ///
    /// `ttl` is 50 ms to 7 days; parts of a millisecond round up. It never makes
    /// the lease end sooner than it would; to end it, release it.
    ///
    /// # Errors
    /// `Unsupported` for a hold that renews itself; `InvalidConfig` for a ttl out
    /// of bounds; `Lost` if the lock was lost; `Unavailable` when no answer came
    /// (within 10 s at most): then the old end counts.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the old end in force here; the server may keep the lock longer.
    pub async fn extend(&self, ttl: Duration) -> Result<()> {
        let Some(hold) = self.hold() else { return Err(self.monitor.lost_because(LossReason::Revoked)) };
        extend_hold(&self.shared, hold, ttl).await
    }

    /// Gives the lock back, and says whether it was still ours. Where it may
    /// [pass on](crate::AcquireOptions::cohort), it goes to the first that waits for it here,
    /// and the server is not asked.
    ///
    /// From the first poll on, [`is_held`](Self::is_held) of every monitor says no.
    ///
    /// # Errors
    /// `Lost` if it had been lost before, or the server says it was no longer
    /// ours. `Unavailable` if no answer came: the release is then retried in the
    /// background until the lease must have ended.
    ///
    /// # Cancel safety
    /// Dropping the future does not stop the release; it goes on in the background.
    pub async fn release(mut self) -> Result<()> {
        let Some(hold) = self.hold.take() else { return Ok(()) };
        let releasing = Releasing::begin(Arc::clone(&hold)).map_err(|reason| {
            hold.stale_release(reason);
            hold.lost(reason).with_operation("release")
        });
        match releasing {
            Ok(releasing) => {
                let claim = hold.own_claim().clone();
                Driven::new(&self.shared, Manner::Finished, finish_release(releasing)).of(claim).await
            }
            Err(lost) => Err(lost),
        }
        .map_err(|e| e.with_engine(self.shared.engine_name()))
    }
}

/// The longest that one extension may take; engines have shorter limits of their own.
const EXTEND: Duration = Duration::from_secs(10);

/// Extends a fixed lease on behalf of one of its guards.
pub(crate) async fn extend_hold(shared: &Arc<Shared>, hold: Arc<Hold>, ttl: Duration) -> Result<()> {
    let ttl = check_ttl(ttl)?;
    let name = hold.claim().name().clone();
    if hold.validity.renews() {
        let message = "this hold renews itself; acquire with auto_renew(false) for a fixed lease";
        return Err(Error::new(ErrorKind::Unsupported, message).with_operation("extend").with_name(&name));
    }
    Driven::new(shared, Manner::Inline, extend(hold, ttl))
        .await
        .map_err(|e| e.with_operation("extend").with_name(&name).with_engine(shared.engine_name()))
}

async fn extend(hold: Arc<Hold>, ttl: Duration) -> Result<()> {
    let validity = &hold.validity;
    let slot = hold.lease.read().await;
    let (Some(lease), true) = (slot.as_ref(), validity.is_held()) else {
        return Err(hold.lost(LossReason::Expired));
    };
    validity.claim().asked_for(ttl.saturating_add(validity.claim().lock_delay()));
    let result = match tokio::time::timeout(EXTEND, lease.extend(ttl, validity)).await {
        Ok(result) => result,
        Err(_) => Err(Error::new(ErrorKind::Unavailable, "no answer")),
    };
    if result.as_ref().is_err_and(|e| e.kind() == ErrorKind::Lost) {
        validity.lose(LossReason::Revoked);
    }
    drop(slot);
    if validity.is_held() {
        return result;
    }
    hold.retire();
    hold.drop_lease();
    result.and_then(|()| Err(hold.lost(LossReason::Expired)))
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if let Some(hold) = self.hold.take()
            && let Ok(releasing) = Releasing::begin(hold)
        {
            self.shared.context.ledger.send(Errand::Release(releasing));
        }
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("name", self.name())
            .field("token", &self.token())
            .field("validity", &self.monitor.validity)
            .finish_non_exhaustive()
    }
}
