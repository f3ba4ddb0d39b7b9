//! From the wish to the guard: one acquisition, undone on every path but the granted one.

use crate::client::Shared;
use crate::hold::Hold;
use crate::reaper::{Boxed, Errand, Ledger};
use crate::validity::{deadline, millis};
use crate::{
    AcquireOptions, Attempt, Claim, DistributedLock, Error, ErrorKind, Grant, LockGuard, LockName, Moment, Obstacle,
    Result, Terms, Wait,
};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// How often a single try is made again when its grant came too late to be of use.
const LATE_TRIES: u32 = 3;
/// What lies between attempts that go on coming too late.
const LATE_PAUSE: Duration = Duration::from_millis(20);
/// How long an endless wait goes on without any answer from the service.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Try,
    Wait,
}

/// A call to the engine, ending with its outcome and the newest attempt it made.
///
/// Dropped before it has ended, it is settled and undone by the reaper.
struct Call<'a> {
    future: Option<Boxed<Result<Attempt>>>,
    claim: Claim,
    ledger: &'a Ledger,
}

impl<'a> Call<'a> {
    fn new(engine: Arc<dyn DistributedLock>, claim: &Claim, verb: Verb, ledger: &'a Ledger) -> Self {
        let asked = claim.clone();
        let future: Boxed<Result<Attempt>> = match verb {
            Verb::Try => Box::pin(async move { engine.try_acquire(&asked).await }),
            Verb::Wait => Box::pin(async move { engine.acquire(&asked).await.map(Attempt::Granted) }),
        };
        Self { future: Some(future), claim: claim.clone(), ledger }
    }
}

impl Future for Call<'_> {
    type Output = (Result<Attempt>, Claim);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(future) = &mut self.future else { return Poll::Pending };
        let Poll::Ready(outcome) = future.as_mut().poll(cx) else { return Poll::Pending };
        // Asked before the future goes, while the newest attempt is still known.
        let last = self.claim.latest();
        self.future = None;
        Poll::Ready((outcome, last))
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if let Some(future) = self.future.take() {
            self.ledger.send(Errand::Settle(future, self.claim.clone()));
        }
    }
}

/// Acquires `name`; `None` if it was a single try and somebody else has it.
pub(crate) async fn acquire(
    shared: Arc<Shared>,
    name: LockName,
    options: AcquireOptions,
    verb: Verb,
) -> Result<Option<LockGuard>> {
    let started = shared.clock.now();
    let terms = Terms::new(name, options.ttl)
        .with_lock_delay(options.lock_delay)
        .with_holder(Arc::clone(&shared.holder))
        .with_clock(shared.clock.clone());
    let terms = Terms { note: options.note.clone(), ..terms };
    let mut claim = terms.mint_in(Some(shared.context.ledger.clone()))?;
    let once = verb == Verb::Try || options.wait == Wait::AtMost(Duration::ZERO);
    let (mut late, engine_verb) = (0, if once { Verb::Try } else { Verb::Wait });
    loop {
        let call = Call::new(Arc::clone(&shared.engine), &claim, engine_verb, &shared.context.ledger);
        let (outcome, last) = tokio::select! {
            biased;
            ended = call => ended,
            given_up = give_up(&shared, &claim, options.wait, started, once) => return Err(given_up),
        };
        let late_claim = match outcome {
            Ok(Attempt::Granted(grant)) if is_fresh(&grant, &shared) => {
                return Ok(Some(hold(&shared, grant, &options, started)));
            }
            Ok(Attempt::Granted(grant)) => grant.claim,
            Ok(Attempt::Contended { .. }) if verb == Verb::Try => return Ok(None),
            Ok(Attempt::Contended { holder, .. }) => {
                claim.met(Obstacle::Held(holder));
                return Err(gave_up(&claim, Duration::ZERO));
            }
            // The id died on the way: it had been granted, unheard, and has expired.
            Err(e) if e.kind() == ErrorKind::Lost => last,
            Err(e) => {
                shared.context.ledger.undo(last);
                return Err(e);
            }
        };
        late += 1;
        if once && late >= LATE_TRIES {
            shared.context.ledger.undo(late_claim);
            let message = format!("granted {late} times, each time too late to be of use");
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        claim = late_claim.next_attempt()?;
        if late > LATE_TRIES {
            tokio::time::sleep(LATE_PAUSE).await;
        }
    }
}

/// A grant with less than a tenth of its ttl left is not worth handing out.
fn is_fresh(grant: &Grant, shared: &Shared) -> bool {
    let until = deadline(grant.sent_at, grant.ttl, shared.context.drift, grant.margin);
    until.since(grant.claim.now()) >= grant.ttl / 10
}

fn hold(shared: &Arc<Shared>, grant: Grant, options: &AcquireOptions, started: Moment) -> LockGuard {
    let claim = &grant.claim;
    tracing::debug!(target: "fencelock", event = "granted", engine = shared.engine_name(), name = %claim.name(),
        claim = %claim.id(), token = grant.token.get(), holder = %claim.holder(),
        waited_ms = millis(claim.now().since(started)), "granted");
    LockGuard::new(Hold::new(grant, options, shared.context.clone()), Arc::clone(shared))
}

/// Ends when the wait is over, with what to tell the caller.
async fn give_up(shared: &Shared, claim: &Claim, wait: Wait, started: Moment, once: bool) -> Error {
    let mut heard = started;
    let mut told = false;
    loop {
        let now = claim.now();
        let waited = now.since(started);
        let held = matches!(claim.obstacle(), Obstacle::Held(_));
        if held {
            heard = now;
        }
        let left = match wait {
            Wait::AtMost(limit) if !limit.is_zero() => limit.saturating_sub(waited),
            _ => PATIENCE.saturating_sub(now.since(heard)),
        };
        if left.is_zero() {
            return gave_up(claim, waited);
        }
        if !told && !once && waited >= Duration::from_secs(1) && shared.context.schedule.holds(claim.name()) {
            told = true;
            tracing::warn!(target: "fencelock", event = "contended_here", name = %claim.name(), claim = %claim.id(),
                "this client holds the lock already; the wait is for its own release");
        }
        // Short naps: tokio's timers stand still in suspend, the wait limit does not.
        let nap = Duration::from_secs(1).saturating_sub(waited);
        let nap = if nap.is_zero() { Duration::from_secs(5) } else { nap.max(Duration::from_millis(1)) };
        tokio::time::sleep(left.min(nap)).await;
    }
}

fn gave_up(claim: &Claim, waited: Duration) -> Error {
    let waited = Duration::from_millis(millis(waited));
    match claim.obstacle() {
        Obstacle::Held(holder) => {
            let by = holder.map(|holder| format!(" by {holder}")).unwrap_or_default();
            let after = if waited.is_zero() { String::new() } else { format!(" after {waited:?}") };
            Error::new(ErrorKind::Timeout, format!("still held{by}{after}"))
        }
        Obstacle::Unreachable(why) => Error::new(ErrorKind::Unavailable, format!("not reached in {waited:?}: {why}")),
        Obstacle::Silence => Error::new(ErrorKind::Unavailable, format!("no answer in {waited:?}")),
    }
}
