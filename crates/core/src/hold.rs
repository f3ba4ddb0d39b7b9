//! What a guard stands for: one granted lock, from the grant to its end.

use crate::cohort::{Passing, Tenure, Won};
use crate::ledger::{Errand, Ledger, OpenEntry};
use crate::observe::{Counted, GivenBack, Observer};
use crate::schedule::{Schedule, Slot};
use crate::sync::lock;
use crate::timed::timed;
use crate::validity::{Drift, HoldTerms};
use crate::{
    AcquireOptions, Claim, Ended, Error, ErrorKind, Evidence, FencingToken, Grant, Lease, LockName, LossReason, Moment,
    Result, Validity,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tokio::sync::RwLock;
use tokio::time::sleep;

/// The longest that one release may take; engines have shorter limits of their own.
const RELEASE: Duration = Duration::from_secs(10);

/// How long a hold lasts before its loss is listened for. A shorter one costs no task, and no loss is missed.
const SETTLED: Duration = Duration::from_millis(20);

pub(crate) struct Hold {
    pub(crate) validity: Validity,
    pub(crate) token: FencingToken,
    /// What the lease says, once it was asked: most are never asked, and a hold without is a tenth smaller.
    evidence: OnceLock<Box<Evidence>>,
    /// Read by who uses the lease, as the guardian does while it renews. Writing joins them.
    pub(crate) lease: RwLock<Option<Box<dyn Lease>>>,
    /// Where the lease may pass on.
    tenure: Mutex<Option<Box<Tenure>>>,
    context: Arc<Context>,
    warned_half: AtomicBool,
    warned_lease: AtomicBool,
    guarded: AtomicBool,
    counted: Mutex<Option<Counted>>,
    retired: AtomicBool,
    slot: Mutex<Option<Slot>>,
}

/// What holds of one client have in common.
pub(crate) struct Context {
    pub(crate) observer: Arc<Observer>,
    pub(crate) ledger: Ledger,
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) drift: Drift,
    /// The engine tells of a loss by itself, so somebody listens nearly from the start.
    pub(crate) push_loss: bool,
    /// Nothing ends by itself in a session, so a lost hold is deleted there.
    pub(crate) in_session: bool,
}

impl Hold {
    /// What was won, held from `now` on.
    pub(crate) fn new(won: Won, options: &AcquireOptions, context: Arc<Context>, now: Moment) -> Arc<Self> {
        let (grant, own, tenure) = won.into_parts();
        let terms = HoldTerms {
            observer: Arc::clone(&context.observer),
            drift: context.drift,
            renews: options.auto_renew,
            jumped: Arc::clone(&context.schedule.jumped),
        };
        let validity = Validity::new(&grant, own, options.max_hold, terms, now);
        let counted = context.observer.held();
        Arc::new(Self {
            validity,
            token: grant.token,
            evidence: OnceLock::new(),
            lease: RwLock::new(Some(grant.lease)),
            tenure: Mutex::new(tenure),
            context,
            warned_half: AtomicBool::new(false),
            warned_lease: AtomicBool::new(false),
            guarded: AtomicBool::new(false),
            counted: Mutex::new(Some(counted)),
            retired: AtomicBool::new(false),
            slot: Mutex::new(None),
        })
    }

    /// The claim that is held, as the server knows it.
    pub(crate) fn claim(&self) -> &Claim {
        self.validity.claim()
    }

    /// The claim of whoever holds it here.
    pub(crate) fn own_claim(&self) -> &Claim {
        self.validity.own_claim()
    }

    /// Who the lease passes on to, if it may and somebody waits for it here; else it is the caller's again.
    fn passes(&self, lease: Box<dyn Lease>) -> Result<Box<Passing>, Box<dyn Lease>> {
        let tenure = lock(&self.tenure).take();
        let (Some(tenure), Some((sent_at, ttl, margin))) = (tenure, self.validity.proof()) else { return Err(lease) };
        let (claim, token) = (self.claim().clone(), self.token);
        let grant = Grant { claim, lease, sent_at, ttl, margin, token, reserved: 0 };
        Passing::of(grant, tenure).map(Box::new).map_err(|grant| grant.lease)
    }

    /// What proves ownership in the store: the same for as long as there is a guard.
    pub(crate) fn evidence(&self) -> Evidence {
        // It could not tell one local holder from the next.
        if lock(&self.tenure).is_some() {
            return Evidence::none();
        }
        // Write-locked by a release alone, after which nobody has a guard to ask with, or below.
        if let Ok(lease) = self.lease.try_read()
            && let Some(lease) = &*lease
        {
            self.evidence.get_or_init(|| Box::new(lease.evidence()));
        }
        // Lost meanwhile, and its lease found in use: by this.
        if self.is_retired() {
            self.let_go();
        }
        self.evidence.get().map(|evidence| Evidence::clone(evidence)).unwrap_or_default()
    }

    pub(crate) fn set_slot(&self, slot: Option<Slot>) -> Option<Slot> {
        std::mem::replace(&mut *lock(&self.slot), slot)
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::SeqCst)
    }

    /// Enters the hold in the schedule, or moves it to where it is due now.
    pub(crate) fn schedule(self: &Arc<Self>, now: Moment) {
        match self.next_look(now) {
            Some(when) => self.context.schedule.put(self, when),
            None => self.retire(),
        }
    }

    /// Does what is due, and says when to look again; `None` once the hold has ended.
    pub(crate) fn look(self: &Arc<Self>) -> Option<Moment> {
        let now = self.claim().now();
        if self.validity.deadline_at(now).is_some() {
            self.warn_if_due(now);
            if self.guard_due().is_some_and(|due| due <= now) && !self.guarded.swap(true, Ordering::SeqCst) {
                tokio::spawn(crate::guardian::guard(Arc::clone(self)));
            }
        }
        self.next_look(now)
    }

    /// When the guardian is to start; `None` if there is to be none, or there is one.
    fn guard_due(&self) -> Option<Moment> {
        if self.guarded.load(Ordering::SeqCst) {
            None
        } else if self.context.push_loss {
            let due = self.validity.since().plus(SETTLED.min(self.validity.ttl() / 10));
            Some(due)
        } else {
            self.validity.renews().then(|| self.validity.renewal_due())
        }
    }

    fn next_look(&self, now: Moment) -> Option<Moment> {
        let deadline = self.validity.deadline_at(now)?;
        [Some(deadline), self.half_over(), self.lease_nearly_over(now), self.guard_due()].into_iter().flatten().min()
    }

    /// When half of the longest hold is over, unless that was warned about.
    fn half_over(&self) -> Option<Moment> {
        let most = self.validity.max_hold().filter(|_| !self.warned_half.load(Ordering::SeqCst))?;
        Some(self.validity.since().plus(most / 2))
    }

    /// When four fifths of a fixed lease are over, unless that was warned about.
    fn lease_nearly_over(&self, now: Moment) -> Option<Moment> {
        if self.validity.renews() || self.warned_lease.load(Ordering::SeqCst) {
            return None;
        }
        self.validity.nearly_over(now)
    }

    fn warn_if_due(&self, now: Moment) {
        for (due, warned, limit) in [
            (self.half_over(), &self.warned_half, "max_hold"),
            (self.lease_nearly_over(now), &self.warned_lease, "ttl"),
        ] {
            if due.is_some_and(|due| due <= now) && !warned.swap(true, Ordering::SeqCst) {
                self.context.observer.long_hold(self.validity.told(), limit);
            }
        }
    }

    /// Ends a hold that nobody watches any more, since the client's tasks have gone.
    pub(crate) fn orphan(&self) {
        self.validity.lose(LossReason::SessionEnded);
    }

    /// Clears up after an end; does so once.
    pub(crate) fn retire(&self) {
        let again = self.retired.swap(true, Ordering::SeqCst);
        lock(&self.counted).take();
        self.context.schedule.remove(self);
        if again || !matches!(self.validity.ended(), Some(Ended::Lost(_))) {
            return;
        }
        self.drop_lease();
        // On a lease the hold runs out, and to free it sooner would undo the lock delay.
        if self.context.in_session {
            let claim = self.claim().clone();
            let delay = self.validity.until_last_deadline().saturating_add(claim.lock_delay());
            self.context.ledger.send(Errand::UndoAfter(claim, delay));
        }
    }

    /// Lets go of a lost hold's lease, unless it is in use; whoever uses it does this after.
    pub(crate) fn drop_lease(&self) {
        // Its guard may still ask.
        let _ = self.evidence();
        self.let_go();
    }

    fn let_go(&self) {
        if let Ok(mut lease) = self.lease.try_write() {
            lease.take();
        }
    }

    /// Why a hold that is not held any more was lost.
    pub(crate) fn lost_reason(&self) -> LossReason {
        match self.validity.ended() {
            Some(Ended::Lost(reason)) => reason,
            Some(Ended::Released) | None => LossReason::Revoked,
        }
    }

    /// Its guard was released although it had been lost.
    pub(crate) fn stale_release(&self, reason: LossReason) {
        self.context.observer.stale_release(self.validity.told(), reason);
    }

    /// Ends the hold as if it had been lost for this reason, unless it has ended.
    pub(crate) fn lose(&self, reason: LossReason) {
        if self.validity.lose(reason) {
            self.retire();
        }
    }

    pub(crate) fn lost(&self, reason: LossReason) -> Error {
        Error::new(ErrorKind::Lost, format!("the lock had been lost: {reason}")).with_name(self.claim().name())
    }
}

/// A hold whose release has begun. Whatever becomes of the release, the hold
/// ends: dropped unfinished, it counts as released here and is undone by id.
pub(crate) struct Releasing {
    hold: Arc<Hold>,
    began: Moment,
    _open: OpenEntry,
    finished: bool,
}

impl Releasing {
    /// Begins the release.
    ///
    /// # Errors
    /// Why the hold was lost, if it was.
    pub(crate) fn begin(hold: Arc<Hold>) -> Result<Self, LossReason> {
        let began = hold.claim().now();
        if let Err(reason) = hold.validity.begin_release(began) {
            hold.retire();
            return Err(reason);
        }
        let open = hold.context.ledger.entry();
        Ok(Self { hold, began, _open: open, finished: false })
    }

    pub(crate) fn name(&self) -> LockName {
        self.hold.claim().name().clone()
    }

    fn finish(&mut self, outcome: Ended) {
        self.finished = true;
        self.hold.validity.end_release(outcome, self.began);
        self.hold.retire();
    }

    /// As events tell of it.
    fn told(&self) -> GivenBack<'_> {
        let (validity, began) = (&self.hold.validity, self.began);
        let held = began.since(validity.since());
        GivenBack { claim: validity.own_claim(), token: self.hold.token, held, began }
    }

    /// Nobody knows whether it was released: it is undone by id, in the background.
    fn unknown(&mut self) {
        self.finish(Ended::Released);
        self.hold.context.observer.release_unknown(self.told());
        self.hold.context.ledger.undo(self.hold.claim().clone());
    }
}

impl Drop for Releasing {
    fn drop(&mut self) {
        if !self.finished {
            self.unknown();
        }
    }
}

/// Releases at the server, after the guardian is joined; or passes the lease on to who waits for it here.
pub(crate) async fn finish_release(mut releasing: Releasing) -> Result<()> {
    let hold = Arc::clone(&releasing.hold);
    // At once where nobody uses it, which is nearly always.
    let lease = if let Ok(mut slot) = hold.lease.try_write() { slot.take() } else { hold.lease.write().await.take() };
    let outcome = match lease.map(|lease| hold.passes(lease)) {
        Some(Ok(passing)) => {
            // This hold is over before the next can be seen.
            releasing.finish(Ended::Released);
            hold.context.observer.released(releasing.told());
            // Whoever has it next may give it back before this call is over, under the claim of this one.
            hold.own_claim().moves_over();
            passing.hand_over(&hold.context.ledger);
            return Ok(());
        }
        Some(Err(lease)) => timed(|| sleep(RELEASE), Some(hold.own_claim()), lease.release()).await,
        None => Some(Err(hold.lost(LossReason::Revoked))),
    };
    let claim = hold.claim();
    let result = match outcome {
        Some(Ok(())) => {
            releasing.finish(Ended::Released);
            hold.context.observer.released(releasing.told());
            Ok(())
        }
        Some(Err(e)) if e.kind() == ErrorKind::Lost => {
            releasing.finish(Ended::Lost(LossReason::Revoked));
            hold.context.observer.stale_release(hold.validity.told(), LossReason::Revoked);
            Err(e)
        }
        unknown => {
            releasing.unknown();
            let message = "not known to be released; retried in the background until the lease must have ended";
            let e = Error::new(ErrorKind::Unavailable, message);
            Err(match unknown {
                Some(Err(cause)) => e.with_source(cause),
                _ => e,
            })
        }
    };
    result.map_err(|e| e.with_operation("release").with_name(claim.name()))
}
