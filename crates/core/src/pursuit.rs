//! From the wish to the guard: one acquisition, undone on every path but the granted one.

use crate::claim::Origin;
use crate::client::Shared;
use crate::cohort::{Place, Won, hand_on};
use crate::driven::{Driven, Manner};
use crate::hold::Hold;
use crate::ledger::{Boxed, Errand, Ledger, WeakLedger};
use crate::observe::Counted;
use crate::rescue::{Lapses, Over};
use crate::sync::lock;
use crate::validity::{deadline, millis};
use crate::{
    AcquireOptions, Attempt, Claim, DistributedLock, Error, ErrorKind, Grant, LockGuard, LockName, Mode, Moment,
    Obstacle, Result, Terms, Wait,
};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, Weak};
use std::task::Poll;
use std::time::Duration;
use tracing::Span;

/// How often a single try is made again when its grant came too late to be of use.
const LATE_TRIES: u32 = 3;
/// What lies between attempts that go on coming too late.
const LATE_PAUSE: Duration = Duration::from_millis(20);
/// How long an endless wait goes on without any answer from the service.
const PATIENCE: Duration = Duration::from_secs(60);

/// A wait that has less than this left is timed at once, any other when it is in a task of the client's.
const SHORT: Duration = Duration::from_millis(100);

/// What is wanted: the lock's name, how it is to be asked for, and since when.
#[derive(Clone)]
pub(crate) struct Wish {
    pub(crate) name: LockName,
    pub(crate) options: AcquireOptions,
    /// One try that waits for nobody and answers `None` if somebody else has it.
    pub(crate) trying: bool,
    pub(crate) started: Moment,
    /// The caller's span, to which what becomes of the hold belongs.
    pub(crate) trace: Span,
}

impl Wish {
    pub(crate) fn new(name: LockName, options: AcquireOptions, trying: bool, started: Moment) -> Self {
        Self { name, options, trying, started, trace: Span::current() }
    }

    /// The same for several who wait, each of whom minds its own limit.
    pub(crate) fn shared(&self) -> Self {
        let mut wish = self.clone();
        wish.trying = self.once();
        wish.options.wait = Wait::Forever;
        wish
    }

    /// A wait of no time at all is one try as well.
    pub(crate) fn once(&self) -> bool {
        self.trying || self.options.wait == Wait::AtMost(Duration::ZERO)
    }
}

/// A call to the engine that can be handed over to the reaper half way.
pub(crate) struct Call(Option<Boxed<Result<Attempt>>>);

impl Call {
    fn new(engine: Arc<dyn DistributedLock>, claim: &Claim, once: bool) -> Self {
        let asked = claim.clone();
        Self(Some(if once {
            Box::pin(async move { engine.try_acquire(&asked).await })
        } else {
            Box::pin(async move { engine.acquire(&asked).await.map(Attempt::Granted) })
        }))
    }

    /// What the engine says; never, if it has said it before.
    pub(crate) async fn outcome(&mut self) -> Result<Attempt> {
        poll_fn(|cx| {
            let Some(call) = &mut self.0 else { return Poll::Pending };
            let outcome = call.as_mut().poll(cx);
            if outcome.is_ready() {
                self.0 = None;
            }
            outcome
        })
        .await
    }
}

/// A call under way. Dropped before it has ended, it is settled and undone by the reaper.
struct UnderWay<'a> {
    call: Call,
    claim: Claim,
    ledger: &'a Ledger,
}

impl UnderWay<'_> {
    /// Ends the call, since the lock was passed on to it: the claim to hold it under.
    ///
    /// What has asked the server for nothing has nothing to undo. Else the call is undone like
    /// any other, and the hold has an id of its own.
    fn leave(mut self) -> Result<Claim> {
        let latest = self.claim.latest();
        if latest.was_sent() {
            return latest.renamed();
        }
        self.call = Call(None);
        Ok(latest)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if self.call.0.is_some() {
            let call = std::mem::replace(&mut self.call, Call(None));
            // From here on it is the reaper's, and lies with nobody.
            self.claim.driven_by(None);
            self.ledger.send(Errand::Settle(call, self.claim.clone()));
        }
    }
}

/// A grant on its way to the caller. Dropped on the way, it is undone.
pub(crate) struct Granted {
    won: Option<Won>,
    shared: Arc<Shared>,
    /// It lies where it can lapse.
    kept: Option<(Arc<Kept>, Over)>,
}

/// A grant whose caller may not come for it.
struct Kept {
    won: Mutex<Option<Won>>,
    ledger: WeakLedger,
}

impl Lapses for Kept {
    fn lapse(&self) {
        let won = lock(&self.won).take();
        if let (Some(won), Some(ledger)) = (won, self.ledger.upgrade()) {
            hand_on(won, &ledger);
        }
    }
}

impl Granted {
    fn new(won: Won, shared: &Arc<Shared>) -> Self {
        let client = Arc::clone(shared);
        if !won.own().is_left_alone() {
            return Self { won: Some(won), shared: client, kept: None };
        }
        let ledger = &shared.context.ledger;
        let end = until(&won.grant, shared.clock.now(), shared);
        let kept = Arc::new(Kept { won: Mutex::new(Some(won)), ledger: ledger.downgrade() });
        let itself: Weak<Kept> = Arc::downgrade(&kept);
        let over = ledger.rescue().kept(itself, end);
        Self { won: None, shared: client, kept: Some((kept, over)) }
    }

    /// What was granted, unless it has lapsed.
    fn collect(&mut self) -> Option<&Won> {
        if let Some((kept, over)) = self.kept.take() {
            self.shared.context.ledger.rescue().taken(&over);
            self.won = lock(&kept.won).take();
        }
        self.won.as_ref()
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        self.collect();
        if let Some(won) = self.won.take() {
            hand_on(won, &self.shared.context.ledger);
        }
    }
}

/// Acquires what is wished for; `None` if it was a single try and somebody else has it.
///
/// The guard is made here, in the caller's future: a grant that the caller does
/// not take in time is not renewed, and so is nobody's for longer than its ttl.
pub(crate) async fn acquire(shared: Arc<Shared>, wish: Wish) -> Result<Option<LockGuard>> {
    loop {
        let claim = mint(&shared, &wish)?;
        let work = pursue(Arc::clone(&shared), wish.clone(), claim.clone());
        let driven = Driven::new(&shared, Manner::Inline, work).of(claim);
        let Some(granted) = driven.await? else {
            return Ok(None);
        };
        shared.check_ready()?;
        if let Some(guard) = take(&shared, granted, &wish) {
            return Ok(Some(guard));
        }
    }
}

/// Makes the guard, unless the grant has come of age on its way.
pub(crate) fn take(shared: &Arc<Shared>, mut granted: Granted, wish: &Wish) -> Option<LockGuard> {
    granted.collect()?;
    let now = shared.clock.now();
    let won = granted.won.take_if(|won| is_fresh(&won.grant, now, shared))?;
    let claim = won.own();
    shared.context.observer.granted((claim, won.grant.token), won.grant.ttl, now.since(wish.started), now);
    let hold = Hold::new(won, &wish.options, Arc::clone(&shared.context), now);
    Some(LockGuard::new(hold, Arc::clone(shared), now))
}

/// A grant with less than a tenth of its ttl left `now` is not worth handing out.
fn is_fresh(grant: &Grant, now: Moment, shared: &Shared) -> bool {
    let until = until(grant, now, shared);
    until > now && until.since(now) >= grant.ttl / 10
}

/// When the grant is of no use to anybody; a moment after `now` at which it was sent could only come from another clock.
fn until(grant: &Grant, now: Moment, shared: &Shared) -> Moment {
    deadline(grant.sent_at.min(now), grant.ttl, shared.context.drift, grant.margin)
}

/// The claim of the first attempt.
pub(crate) fn mint(shared: &Shared, wish: &Wish) -> Result<Claim> {
    let options = &wish.options;
    let terms = Terms {
        name: wish.name.clone(),
        ttl: options.ttl,
        lock_delay: options.lock_delay,
        holder: Arc::clone(&shared.holder),
        note: options.note.clone(),
        mode: Mode::Exclusive,
        clock: shared.clock.clone(),
        reserve: options.reserve(),
        renews: options.auto_renew,
    };
    let ledger = shared.context.ledger.downgrade();
    let origin = Origin { ledger, observer: Arc::clone(&shared.context.observer), span: wish.trace.clone() };
    terms.mint_in(Some(origin))
}

pub(crate) async fn pursue(shared: Arc<Shared>, wish: Wish, claim: Claim) -> Result<Option<Granted>> {
    let observer = &shared.context.observer;
    observer.asked(&claim, &wish.options, wish.trying);
    let waiting = Asking { shared: &shared, ended: false, _counted: observer.waiting() };
    let outcome = pursue_on(&shared, &wish, claim).await;
    waiting.end(&outcome);
    outcome
}

/// A call under way, for who counts them. Dropped before its end it was cancelled.
struct Asking<'a> {
    shared: &'a Shared,
    ended: bool,
    _counted: Counted,
}

impl Asking<'_> {
    fn end(mut self, outcome: &Result<Option<Granted>>) {
        self.ended = true;
        match outcome {
            // Counted when the caller takes it.
            Ok(Some(_)) => {}
            Ok(None) => self.shared.context.observer.tried_in_vain(),
            Err(e) => self.shared.context.observer.refused(Some(e)),
        }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.shared.context.observer.refused(None);
        }
    }
}

async fn pursue_on(shared: &Arc<Shared>, wish: &Wish, mut claim: Claim) -> Result<Option<Granted>> {
    let ledger = &shared.context.ledger;
    let mut late = 0;
    loop {
        let mut place = if wish.once() { None } else { shared.cohorts.join(&claim, &wish.options) };
        let call = Call::new(Arc::clone(&shared.engine), &claim, wish.once());
        let mut under_way = UnderWay { call, claim: claim.clone(), ledger };
        let outcome = tokio::select! {
            biased;
            outcome = under_way.call.outcome() => outcome,
            parcel = Place::of(&mut place) => {
                let own = under_way.leave()?;
                return Ok(parcel.open(own).map(|won| Granted::new(won, shared)));
            }
            given_up = give_up(shared, &claim, wish) => return Err(given_up),
        };
        let too_late = match outcome {
            Ok(Attempt::Granted(grant)) => {
                claim.asked_for(grant.ttl.saturating_add(claim.lock_delay()));
                if is_fresh(&grant, shared.clock.now(), shared) {
                    return Ok(Some(Granted::new(Won::granted(grant, &shared.cohorts), shared)));
                }
                grant.claim
            }
            Ok(Attempt::Contended { holder, .. }) if wish.trying => {
                claim.met(Obstacle::Held(holder));
                return Ok(None);
            }
            Ok(Attempt::Contended { holder, .. }) => {
                claim.met(Obstacle::Held(holder));
                return Err(gave_up(&claim, Duration::ZERO));
            }
            // The id died on the way: it had been granted, unheard, and has expired.
            Err(e) if e.kind() == ErrorKind::Lost => claim.latest(),
            Err(e) => {
                ledger.undo(claim.latest());
                return Err(e);
            }
        };
        late += 1;
        // Nobody must wait here for an undo with a lease in hand.
        drop(place);
        // Undone before it is tried again, or the next attempt would meet the trace of this one.
        tokio::select! {
            () = ledger.undone(too_late.clone()) => {}
            given_up = give_up(shared, &claim, wish) => return Err(given_up),
        }
        if wish.once() && late >= LATE_TRIES {
            let message = format!("granted {late} times, each time too late to be of use");
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        claim = too_late.next_attempt_undone()?;
        if late > LATE_TRIES {
            tokio::time::sleep(LATE_PAUSE).await;
        }
    }
}

/// Ends when the wait is over, with what to tell the caller.
pub(crate) async fn give_up(shared: &Shared, claim: &Claim, wish: &Wish) -> Error {
    let is_soon = match wish.options.wait {
        Wait::AtMost(limit) => limit < claim.now().since(wish.started).saturating_add(SHORT),
        Wait::Forever => false,
    };
    if !is_soon {
        // What lies with its caller is taken over before this matters, and polled then.
        poll_fn(|_| if claim.is_left_alone() { Poll::Ready(()) } else { Poll::Pending }).await;
    }
    // In a place of its own: most calls never come here.
    Box::pin(wait_is_over(shared, claim, wish)).await
}

async fn wait_is_over(shared: &Shared, claim: &Claim, wish: &Wish) -> Error {
    let mut heard = wish.started;
    let mut told = false;
    loop {
        let closing = shared.closing.notified();
        tokio::pin!(closing);
        closing.as_mut().enable();
        if let Err(refused) = shared.check_ready() {
            return refused;
        }
        let now = claim.now();
        let waited = now.since(wish.started);
        if matches!(claim.obstacle(), Obstacle::Held(_)) {
            heard = now;
        }
        let left = match wish.options.wait {
            Wait::AtMost(limit) if !limit.is_zero() => limit.saturating_sub(waited),
            _ => PATIENCE.saturating_sub(now.since(heard)),
        };
        if left.is_zero() {
            return gave_up(claim, waited);
        }
        if !told && !wish.once() && waited >= Duration::from_secs(1) && shared.context.schedule.holds(claim.name()) {
            told = true;
            shared.context.observer.contended_here(claim, waited);
        }
        // Short naps: tokio's timers stand still in suspend, the wait limit does not.
        let nap = Duration::from_secs(1).saturating_sub(waited);
        let nap = if nap.is_zero() { Duration::from_secs(5) } else { nap.max(Duration::from_millis(1)) };
        tokio::select! {
            () = tokio::time::sleep(left.min(nap)) => {}
            () = closing => {}
        }
    }
}

pub(crate) fn gave_up(claim: &Claim, waited: Duration) -> Error {
    let waited = Duration::from_millis(millis(waited));
    match claim.obstacle() {
        Obstacle::Held(holder) => {
            let after = if waited.is_zero() { String::new() } else { format!(" after {waited:?}") };
            let message = holder.map_or_else(
                // Engines know no holder where they cannot tell, and where there is none: it is not claimed that there is.
                || format!("still not free{after}: no holder is known, and a lock delay or a transaction may keep it closed"),
                |holder| format!("still held by {holder}{after}"),
            );
            Error::new(ErrorKind::Timeout, message)
        }
        Obstacle::Unreachable(why) => Error::new(ErrorKind::Unavailable, format!("not reached in {waited:?}: {why}")),
        Obstacle::Silence => Error::new(ErrorKind::Unavailable, format!("no answer in {waited:?}")),
    }
}
