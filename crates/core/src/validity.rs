//! How long a hold may be believed: the only time arithmetic there is.
//!
//! `deadline = sent + ttl·(1 − ρ) − δ`, where `sent` was read on the claim's
//! [`Clock`](crate::Clock) *before* the request left, ρ allows for clocks that
//! run at different rates and δ for the engine's rounding. The server counts
//! from when the request arrived, which is later than `sent`; so, with rates
//! within ρ, the holder's deadline passes before the server's. Counting from
//! the reply, or on a clock that stops in suspend, breaks exclusion. (The rule
//! is that of the leases of Gray and Cheriton, 1989.)

use crate::observe::{Observer, Told};
use crate::{Claim, Ended, FencingToken, Grant, LossReason, Moment};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Allowance for clock rates that differ, in parts per million of the ttl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Drift(u32);

impl Drift {
    pub(crate) const DEFAULT: Self = Self(10_000);

    /// At most half: beyond that no renewal could come in time.
    pub(crate) fn from_ppm(ppm: u32) -> Option<Self> {
        (ppm <= 500_000).then_some(Self(ppm))
    }

    pub(crate) fn ppm(self) -> u32 {
        self.0
    }

    fn of(self, ttl: Duration) -> Duration {
        // In two parts, so that neither overflows and no parts of a nanosecond are lost.
        let (nanos, ppm) = (crate::clock::nanos(ttl), u64::from(self.0));
        let rest = (nanos % 1_000_000).saturating_mul(ppm).div_ceil(1_000_000);
        Duration::from_nanos((nanos / 1_000_000).saturating_mul(ppm).saturating_add(rest))
    }
}

const fn code(reason: LossReason) -> u64 {
    match reason {
        LossReason::Expired => 1,
        LossReason::Revoked => 2,
        LossReason::SessionEnded => 3,
        LossReason::MaxHold => 4,
        LossReason::Degraded => 7,
    }
}
const RELEASED: u64 = 5;
const RELEASING: u64 = 6;
/// States below this are codes, from here on they are deadlines in nanoseconds.
const FIRST_DEADLINE: u64 = 64;

fn ended(state: u64) -> Option<Ended> {
    match state {
        1 => Some(Ended::Lost(LossReason::Expired)),
        2 => Some(Ended::Lost(LossReason::Revoked)),
        3 => Some(Ended::Lost(LossReason::SessionEnded)),
        4 => Some(Ended::Lost(LossReason::MaxHold)),
        7 => Some(Ended::Lost(LossReason::Degraded)),
        RELEASED => Some(Ended::Released),
        _ => None,
    }
}

/// A hold's validity, shared by its guard, its monitors and its engine.
///
/// An engine proves contact with [`renewed`](Self::renewed); nothing else moves
/// the deadline onwards. Deadline and end live in one atomic word, so that no
/// renewal can revive what a reader has already seen expire.
#[derive(Clone)]
pub struct Validity(Arc<Inner>);

struct Inner {
    state: AtomicU64,
    /// When the last request left that was acknowledged.
    proved: AtomicU64,
    ttl: AtomicU64,
    doubted: AtomicBool,
    margin: Duration,
    /// When the hold is lost however well it is renewed.
    limit: Option<Moment>,
    since: Moment,
    claim: Claim,
    /// The holder's own claim, where the lease was passed on to it.
    own: Option<Box<Claim>>,
    token: FencingToken,
    terms: HoldTerms,
    changed: Notify,
}

/// What a client says of each of its holds.
#[derive(Clone)]
pub(crate) struct HoldTerms {
    pub(crate) observer: Arc<Observer>,
    pub(crate) drift: Drift,
    pub(crate) renews: bool,
    /// Rung when the clock has outrun the timers.
    pub(crate) jumped: Arc<Notify>,
}

/// How long after the grant a lease passes on at the most, however often it may.
const PASSES: Duration = Duration::from_millis(50);

/// From when a lease that was asked for at `sent` and was there at `had` passes on to nobody: before its first renewal
/// is due, which is long after the one and may be soon after the other.
pub(crate) fn passes_until(sent: Moment, had: Moment, ttl: Duration) -> Moment {
    had.plus(PASSES).min(sent.plus(ttl / 3))
}

/// When a hold proved at `sent` may no longer be believed.
pub(crate) fn deadline(sent: Moment, ttl: Duration, drift: Drift, margin: Duration) -> Moment {
    sent.plus(ttl.saturating_sub(drift.of(ttl)).saturating_sub(margin))
}

fn clamped(until: Moment, limit: Option<Moment>) -> u64 {
    limit.map_or(until, |limit| until.min(limit)).as_nanos().max(FIRST_DEADLINE)
}

impl Validity {
    /// The hold of `grant`, which begins now: at `since`.
    pub(crate) fn new(
        grant: &Grant,
        own: Option<Claim>,
        max_hold: Option<Duration>,
        terms: HoldTerms,
        since: Moment,
    ) -> Self {
        // A moment of the future could only come from another clock.
        let sent = grant.sent_at.min(since);
        let limit = max_hold.map(|most| since.plus(most));
        let until = deadline(sent, grant.ttl, terms.drift, grant.margin);
        Self(Arc::new(Inner {
            state: AtomicU64::new(clamped(until, limit)),
            proved: AtomicU64::new(sent.as_nanos()),
            ttl: AtomicU64::new(crate::clock::nanos(grant.ttl)),
            doubted: AtomicBool::new(false),
            margin: grant.margin,
            limit,
            since,
            claim: grant.claim.clone(),
            own: own.map(Box::new),
            token: grant.token,
            terms,
            changed: Notify::new(),
        }))
    }

    /// The claim that is held, as the server knows it: that of the first holder, where the lease was
    /// [passed on](crate::AcquireOptions::cohort) since.
    #[must_use]
    pub fn claim(&self) -> &Claim {
        &self.0.claim
    }

    /// The claim of whoever holds it here.
    pub(crate) fn own_claim(&self) -> &Claim {
        self.0.own.as_deref().unwrap_or(&self.0.claim)
    }

    /// What whoever the lease is passed on to counts from, which is no later than what this hold counted
    /// from: when the last request left that was acknowledged, the ttl and the margin. None while contact is in doubt.
    pub(crate) fn proof(&self) -> Option<(Moment, Duration, Duration)> {
        let proved = Moment::from_nanos(self.0.proved.load(Ordering::SeqCst));
        (!self.0.doubted.load(Ordering::SeqCst)).then_some((proved, self.ttl(), self.0.margin))
    }

    /// The present moment on the hold's clock: read it *before* a renewal is sent.
    #[must_use]
    pub fn now(&self) -> Moment {
        self.0.claim.now()
    }

    /// The holder's time to live as granted, without the lock delay.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        Duration::from_nanos(self.0.ttl.load(Ordering::SeqCst))
    }

    /// The time to live that a renewal asks the server for: ttl and lock delay together.
    #[must_use]
    pub fn server_ttl(&self) -> Duration {
        self.ttl().saturating_add(self.0.claim.lock_delay())
    }

    /// Whether the hold may be believed now. Reads the clock; once false, always false.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.deadline().is_some()
    }

    /// The moment from which the hold may no longer be believed; `None` once it has ended.
    #[must_use]
    pub fn deadline(&self) -> Option<Moment> {
        self.deadline_at(self.now())
    }

    /// The same for who has read the clock: `now` must have been so just now.
    pub(crate) fn deadline_at(&self, now: Moment) -> Option<Moment> {
        loop {
            let state = self.0.state.load(Ordering::SeqCst);
            if state < FIRST_DEADLINE {
                return None;
            }
            if now.as_nanos() < state {
                return Some(Moment::from_nanos(state));
            }
            let at_limit = self.0.limit.is_some_and(|limit| limit.as_nanos() <= state);
            let reason = if at_limit { LossReason::MaxHold } else { LossReason::Expired };
            if self.swap(state, code(reason), Moment::from_nanos(state)) {
                return None;
            }
        }
    }

    /// How long the hold may still be believed.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.deadline().map_or(Duration::ZERO, |until| until.since(self.now()))
    }

    /// Whether the hold is to be renewed; a fixed lease is not.
    #[must_use]
    pub fn renews(&self) -> bool {
        self.0.terms.renews
    }

    /// A renewal that left at `sent` was acknowledged: the deadline moves on.
    ///
    /// A renewal acknowledged after the deadline changes nothing, and a fixed
    /// lease is only told that contact is good.
    pub fn renewed(&self, sent: Moment) {
        if !self.renews() {
            self.0.doubted.store(false, Ordering::SeqCst);
            return;
        }
        self.extended(sent, self.ttl());
        self.0.terms.observer.renewed(self.told(), self.remaining());
    }

    /// As [`renewed`](Self::renewed), when the server granted another ttl (its
    /// holder's part). Never moves the deadline back.
    pub fn extended(&self, sent: Moment, ttl: Duration) {
        let sent = sent.min(self.now());
        let until = clamped(deadline(sent, ttl, self.0.terms.drift, self.0.margin), self.0.limit);
        loop {
            let Some(now) = self.deadline() else { return };
            if until <= now.as_nanos() || self.cas(now.as_nanos(), until) {
                break;
            }
        }
        self.0.ttl.store(crate::clock::nanos(ttl), Ordering::SeqCst);
        // An acknowledgement of something older than the last proof says nothing of contact now.
        if self.0.proved.fetch_max(sent.as_nanos(), Ordering::SeqCst) < sent.as_nanos() {
            self.0.doubted.store(false, Ordering::SeqCst);
        }
    }

    /// Contact is broken, or a renewal was not answered: the hold is in jeopardy
    /// until the next acknowledged renewal, and lost at its deadline.
    pub fn doubt(&self, why: &dyn fmt::Display) {
        if self.is_held() && !self.0.doubted.swap(true, Ordering::SeqCst) {
            self.0.terms.observer.jeopardy(self.told(), self.remaining(), why);
        }
    }

    /// Whether the hold is believed although contact is broken or a renewal is overdue.
    #[must_use]
    pub fn in_jeopardy(&self) -> bool {
        self.is_held() && (self.0.doubted.load(Ordering::SeqCst) || self.is_overdue())
    }

    fn is_overdue(&self) -> bool {
        self.renews() && self.now() > self.renewal_due().plus(self.retry_pause())
    }

    /// When the next renewal should leave: a third of the ttl after the last that was acknowledged.
    #[must_use]
    pub fn renewal_due(&self) -> Moment {
        Moment::from_nanos(self.0.proved.load(Ordering::SeqCst)).plus(self.ttl() / 3)
    }

    /// How long to wait before a renewal that was not answered is sent again: a tenth of the ttl.
    #[must_use]
    pub fn retry_pause(&self) -> Duration {
        self.ttl() / 10
    }

    /// How long one renewal may take before it counts as not answered: a fifth of the ttl.
    #[must_use]
    pub fn request_limit(&self) -> Duration {
        self.ttl() / 5
    }

    /// Sleeps until `moment` on the hold's clock, which counts suspended time as
    /// tokio's timers do not. Returns at once when that is past.
    pub async fn sleep_until(&self, moment: Moment) {
        loop {
            let jumped = self.0.terms.jumped.notified();
            tokio::pin!(jumped);
            jumped.as_mut().enable();
            let left = moment.since(self.now());
            if left.is_zero() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(left) => {}
                () = jumped => {}
            }
        }
    }

    /// The hold as events tell of it.
    pub(crate) fn told(&self) -> Told<'_> {
        Told::now(self.own_claim(), self.0.token, self.0.since)
    }

    /// When four fifths of the ttl are over without an extension.
    pub(crate) fn nearly_over(&self, now: Moment) -> Option<Moment> {
        let fifth = crate::clock::nanos(self.ttl() / 5);
        self.deadline_at(now).map(|until| Moment::from_nanos(until.as_nanos().saturating_sub(fifth)))
    }

    /// The longest hold that was asked for.
    pub(crate) fn max_hold(&self) -> Option<Duration> {
        self.0.limit.map(|limit| limit.since(self.0.since))
    }

    /// When the hold was granted.
    pub(crate) fn since(&self) -> Moment {
        self.0.since
    }

    /// How the hold ended; `None` while it is held or its release is under way.
    #[must_use]
    pub fn ended(&self) -> Option<Ended> {
        // A deadline that has passed counts as an end even if nobody has looked yet.
        let _ = self.is_held();
        ended(self.0.state.load(Ordering::SeqCst))
    }

    /// Whether it is known that the hold has ended or its release has begun: asks no
    /// clock, and so tells nobody of anything. For those who hold a lock.
    pub(crate) fn is_known_to_have_ended(&self) -> bool {
        self.0.state.load(Ordering::SeqCst) < FIRST_DEADLINE
    }

    /// Ends when the hold has ended, told by its client's ticker.
    pub async fn until_ended(&self) -> Ended {
        self.until(|v| v.ended()).await
    }

    /// Ends at the next change, of those that are made after it was enabled.
    pub(crate) fn changes(&self) -> Notified<'_> {
        self.0.changed.notified()
    }

    async fn until<T>(&self, done: impl Fn(&Self) -> Option<T>) -> T {
        loop {
            let changed = self.changes();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(done) = done(self) {
                return done;
            }
            changed.await;
        }
    }

    /// The hold is lost; true if it was still held and this ended it.
    pub(crate) fn lose(&self, reason: LossReason) -> bool {
        while let Some(until) = self.deadline() {
            if self.swap(until.as_nanos(), code(reason), self.now()) {
                return true;
            }
        }
        false
    }

    /// How far off the deadline of the last acknowledged contact is, whatever ended the hold since.
    pub(crate) fn until_last_deadline(&self) -> Duration {
        let proved = Moment::from_nanos(self.0.proved.load(Ordering::SeqCst));
        deadline(proved, self.ttl(), self.0.terms.drift, self.0.margin).since(self.now())
    }

    /// Ends the must-hold time `now`: from here on `is_held` says no.
    pub(crate) fn begin_release(&self, now: Moment) -> Result<(), LossReason> {
        while let Some(until) = self.deadline_at(now) {
            if self.swap(until.as_nanos(), RELEASING, now) {
                return Ok(());
            }
        }
        match self.ended() {
            Some(Ended::Lost(reason)) => Err(reason),
            // A guard releases once, so this is unreachable; the safe answer is the one that frees nothing.
            Some(Ended::Released) | None => Err(LossReason::Revoked),
        }
    }

    /// How the release that had begun at `began` came out.
    pub(crate) fn end_release(&self, outcome: Ended, began: Moment) {
        let end = match outcome {
            Ended::Released => RELEASED,
            Ended::Lost(reason) => code(reason),
        };
        self.swap(RELEASING, end, began);
    }

    fn cas(&self, from: u64, to: u64) -> bool {
        self.0.state.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Changes the state; if it is to a loss, that was at `end`.
    fn swap(&self, from: u64, to: u64, end: Moment) -> bool {
        let swapped = self.cas(from, to);
        if swapped {
            if let Some(Ended::Lost(reason)) = ended(to) {
                self.0.terms.observer.lost(self.told(), self.now().since(end), reason);
            }
            self.0.changed.notify_waiters();
        }
        swapped
    }
}

/// Rounded up, so that what began so long ago did not begin later.
pub(crate) fn micros(d: Duration) -> u64 {
    u64::try_from(d.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX)
}

pub(crate) fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

impl fmt::Debug for Validity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Validity")
            .field("claim", &self.own_claim().id())
            .field("ended", &self.ended())
            .field("remaining", &self.remaining())
            .field("in_jeopardy", &self.in_jeopardy())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "validity_tests.rs"]
mod tests;
