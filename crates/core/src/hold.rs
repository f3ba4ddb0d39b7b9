//! What a guard stands for: one granted lock, from the grant to its end.

use crate::reaper::{Errand, Ledger};
use crate::schedule::{Schedule, Slot};
use crate::sync::lock;
use crate::validity::{Drift, millis};
use crate::{
    AcquireOptions, Claim, Ended, Error, ErrorKind, Evidence, FencingToken, Grant, Lease, LossReason, Moment, Result,
    Validity,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The longest that one release may take; engines have shorter limits of their own.
const RELEASE: Duration = Duration::from_secs(10);

pub(crate) struct Hold {
    pub(crate) validity: Validity,
    pub(crate) token: FencingToken,
    pub(crate) evidence: Evidence,
    pub(crate) renews: bool,
    /// Owned by whoever acts on the lease: the guardian while it renews. Locking it joins the guardian.
    pub(crate) lease: tokio::sync::Mutex<Option<Box<dyn Lease>>>,
    context: Context,
    granted: Moment,
    max_hold: Option<Moment>,
    warning: Mutex<Option<Moment>>,
    guarded: AtomicBool,
    retired: AtomicBool,
    slot: Mutex<Option<Slot>>,
}

/// What holds of one client have in common.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) ledger: Ledger,
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) drift: Drift,
    /// The engine tells of a loss by itself, so somebody listens from the start.
    pub(crate) push_loss: bool,
    /// Nothing ends by itself in a session, so a lost hold is deleted there.
    pub(crate) in_session: bool,
}

impl Hold {
    pub(crate) fn new(grant: Grant, options: &AcquireOptions, context: Context) -> Arc<Self> {
        let Grant { claim, lease, sent_at, ttl, margin, token } = grant;
        let granted = claim.now();
        let renews = options.auto_renew;
        let validity = Validity::new(claim, sent_at, ttl, margin, context.drift, renews);
        let warning = match (options.max_hold, renews) {
            (Some(most), _) => Some(granted.plus(most / 2)),
            (None, false) => Some(sent_at.plus(ttl / 5 * 4)),
            (None, true) => None,
        };
        Arc::new(Self {
            validity,
            token,
            evidence: lease.evidence(),
            renews,
            lease: tokio::sync::Mutex::new(Some(lease)),
            context,
            granted,
            max_hold: options.max_hold.map(|most| granted.plus(most)),
            warning: Mutex::new(warning),
            guarded: AtomicBool::new(false),
            retired: AtomicBool::new(false),
            slot: Mutex::new(None),
        })
    }

    pub(crate) fn claim(&self) -> &Claim {
        self.validity.claim()
    }

    pub(crate) fn set_slot(&self, slot: Option<Slot>) -> Option<Slot> {
        std::mem::replace(&mut *lock(&self.slot), slot)
    }

    /// How long it was or has been held.
    pub(crate) fn held_for(&self) -> Duration {
        self.claim().now().since(self.granted)
    }

    /// Enters the hold in the schedule, or moves it to where it is due now.
    pub(crate) fn schedule(self: &Arc<Self>) {
        match self.next_look() {
            Some(when) => self.context.schedule.put(self, when),
            None => self.retire(),
        }
    }

    /// Does what is due, and says when to look again; `None` once the hold has ended.
    pub(crate) fn look(self: &Arc<Self>) -> Option<Moment> {
        let now = self.claim().now();
        if self.max_hold.is_some_and(|most| most <= now) {
            self.validity.lose(LossReason::MaxHold);
        }
        if self.validity.is_held() {
            self.warn_if_due(now);
            if self.is_guard_due(now) && !self.guarded.swap(true, Ordering::SeqCst) {
                tokio::spawn(crate::guardian::guard(Arc::clone(self)));
            }
        }
        self.next_look()
    }

    fn is_guard_due(&self, now: Moment) -> bool {
        self.renews && (self.context.push_loss || now >= self.validity.renewal_due())
    }

    fn next_look(&self) -> Option<Moment> {
        let deadline = self.validity.deadline()?;
        let renewal = (self.renews && !self.guarded.load(Ordering::SeqCst))
            .then(|| if self.context.push_loss { self.granted } else { self.validity.renewal_due() });
        let warning = *lock(&self.warning);
        [Some(deadline), self.max_hold, warning, renewal].into_iter().flatten().min()
    }

    fn warn_if_due(&self, now: Moment) {
        let mut warning = lock(&self.warning);
        if warning.is_some_and(|when| when <= now) {
            *warning = None;
            let (held_ms, claim) = (millis(self.held_for()), self.claim());
            tracing::warn!(target: "fencelock", event = "long_hold", name = %claim.name(), claim = %claim.id(), held_ms,
                "a long hold: over half of max_hold, or over 80 % of a fixed lease, is used");
        }
    }

    /// Ends a hold that nobody watches any more, since the client's tasks have gone.
    pub(crate) fn orphan(&self) {
        self.validity.lose(LossReason::SessionEnded);
    }

    /// Clears up after an end; does so once.
    pub(crate) fn retire(&self) {
        self.context.schedule.remove(self);
        if self.retired.swap(true, Ordering::SeqCst) {
            return;
        }
        if matches!(self.validity.ended(), Some(Ended::Lost(_))) {
            if let Ok(mut lease) = self.lease.try_lock() {
                lease.take();
            }
            // On a lease the hold runs out, and to free it sooner would undo the lock delay.
            if self.context.in_session {
                let claim = self.claim().clone();
                let delay = self.validity.until_last_deadline().saturating_add(claim.lock_delay());
                self.context.ledger.send(Errand::UndoAfter(claim, delay));
            }
        }
    }

    pub(crate) fn lost(&self, reason: LossReason) -> Error {
        Error::new(ErrorKind::Lost, format!("the lock had been lost: {reason}")).with_name(self.claim().name())
    }
}

/// Releases a hold whose release has begun: the guardian is joined, then the server is asked.
pub(crate) async fn finish_release(hold: Arc<Hold>) -> Result<()> {
    let lease = hold.lease.lock().await.take();
    let outcome = match lease {
        Some(lease) => tokio::time::timeout(RELEASE, lease.release()).await,
        None => Ok(Err(hold.lost(LossReason::Revoked))),
    };
    let claim = hold.claim();
    let result = match outcome {
        Ok(Ok(())) => {
            hold.validity.end_release(Ended::Released);
            tracing::debug!(target: "fencelock", event = "released", name = %claim.name(), claim = %claim.id(),
                token = hold.token.get(), held_ms = millis(hold.held_for()), "released");
            Ok(())
        }
        Ok(Err(e)) if e.kind() == ErrorKind::Lost => {
            hold.validity.end_release(Ended::Lost(LossReason::Revoked));
            Err(e)
        }
        unknown => {
            hold.validity.end_release(Ended::Released);
            hold.context.ledger.undo(claim.clone());
            let e = Error::new(
                ErrorKind::Unavailable,
                "not known to be released; retried in the background until the lease ends",
            );
            Err(match unknown {
                Ok(Err(cause)) => e.with_source(cause),
                _ => e,
            })
        }
    };
    hold.retire();
    result.map_err(|e| e.with_operation("release").with_name(claim.name()))
}
