//! A lease that claims of one client share: its state, and who uses it.

use crate::failure::{Failure, Refusal};
use crate::holds::Holds;
use crate::sync::lock;
use fencelock_core::{Claim, Clock, Moment, Obstacle};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// After so many void ids a lease takes no new claims, so that those it has end some day.
const WORN: usize = 1_000;

/// What claims must agree on to share a lease: the seconds asked for, and the lock delay in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Span {
    pub(crate) seconds: i64,
    pub(crate) delay: Duration,
}

impl Span {
    pub(crate) fn of(claim: &Claim) -> Self {
        let whole = claim.server_ttl();
        let seconds = whole.as_secs().saturating_add(u64::from(whole.subsec_nanos() > 0)).max(1);
        Self { seconds: i64::try_from(seconds).unwrap_or(i64::MAX), delay: claim.lock_delay() }
    }
}

/// How a lease stands.
#[derive(Clone, Debug)]
pub(crate) enum State {
    /// Not granted yet; what is in the way.
    Opening(Option<Arc<str>>),
    Alive(Proof),
    /// Gone for good, and every key with it.
    Ended(Failure),
}

/// What the last acknowledged keepalive proved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proof {
    pub(crate) id: i64,
    /// The holder's part of what the server granted.
    pub(crate) ttl: Duration,
    /// When the acknowledged request left, on the lease's clock.
    pub(crate) sent: Moment,
}

pub(crate) struct Shared {
    pub(crate) span: Span,
    pub(crate) clock: Clock,
    pub(crate) state: watch::Sender<State>,
    pub(crate) holds: Holds,
    users: AtomicUsize,
    /// How often a use has begun.
    uses: AtomicU64,
    voids: AtomicUsize,
    /// Wakes the keeper: somebody wants a fresh proof, or the last user has gone.
    pub(crate) wake: Notify,
    pub(crate) hurry: AtomicBool,
    pub(crate) closing: AtomicBool,
    /// Why the last keepalive was refused, where waiting for another is of no use.
    refused: Mutex<Option<Failure>>,
    /// A safety look is under way.
    pub(crate) looking: AtomicBool,
}

impl Shared {
    pub(crate) fn new(span: Span, clock: Clock) -> Self {
        let (state, _) = watch::channel(State::Opening(None));
        Self {
            span,
            clock,
            state,
            holds: Holds::default(),
            users: AtomicUsize::new(0),
            uses: AtomicU64::new(0),
            voids: AtomicUsize::new(0),
            wake: Notify::new(),
            hurry: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            refused: Mutex::default(),
            looking: AtomicBool::new(false),
        }
    }

    pub(crate) fn state(&self) -> State {
        self.state.borrow().clone()
    }

    pub(crate) fn users(&self) -> usize {
        self.users.load(Ordering::SeqCst)
    }

    /// Another number after each use that began, however short.
    pub(crate) fn uses(&self) -> u64 {
        self.uses.load(Ordering::SeqCst)
    }

    /// Whether new claims may still join it.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(*self.state.borrow(), State::Ended(_)) && self.voids.load(Ordering::SeqCst) < WORN
    }

    pub(crate) fn note_void(&self) {
        self.voids.fetch_add(1, Ordering::SeqCst);
    }

    /// The lease is gone; what ended it first counts.
    pub(crate) fn end(&self, why: Failure) {
        self.state.send_if_modified(|state| {
            let ends = !matches!(state, State::Ended(_));
            if ends {
                *state = State::Ended(why);
            }
            ends
        });
        self.holds.suspect_all();
        self.wake.notify_one();
    }

    /// Asks for a keepalive now.
    pub(crate) fn renew_now(&self) {
        self.hurry.store(true, Ordering::SeqCst);
        self.wake.notify_one();
    }

    /// A moment of the lease's clock, on another: as long ago there, or longer.
    pub(crate) fn on(&self, clock: &Clock, sent: Moment) -> Moment {
        let now = clock.now();
        let age = self.clock.now().since(sent);
        let age = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
        Moment::from_nanos(now.as_nanos().saturating_sub(age))
    }

    /// A keepalive was acknowledged: every hold's deadline moves on.
    pub(crate) fn proved(&self, proof: Proof) {
        lock(&self.refused).take();
        for validity in self.holds.validities() {
            validity.renewed(self.on(validity.claim().clock(), proof.sent));
        }
        self.state.send_if_modified(|state| {
            let alive = !matches!(state, State::Ended(_));
            if alive {
                *state = State::Alive(proof);
            }
            alive
        });
    }

    /// A keepalive was not acknowledged: every hold is in jeopardy.
    pub(crate) fn doubted(&self, why: &Failure) {
        *lock(&self.refused) = Some(why.clone()).filter(Failure::is_final);
        // Those who wait for a proof have reason to look.
        self.state.send_modify(|_| {});
        for validity in self.holds.validities() {
            validity.doubt(why);
        }
    }

    /// Ends when the lease is gone.
    pub(crate) async fn until_ended(&self) -> Failure {
        let mut state = self.state.subscribe();
        let ended = state.wait_for(|state| matches!(state, State::Ended(_))).await;
        match ended.as_deref() {
            Ok(State::Ended(why)) => why.clone(),
            _ => Failure::Refused(Refusal::NoLease),
        }
    }

    /// Waits until the lease is proved with at least half of its ttl left, and tells the claim what is in the way.
    pub(crate) async fn until_proved(&self, claim: &Claim) -> Result<Proof, Failure> {
        let mut changes = self.state.subscribe();
        loop {
            let state = changes.borrow_and_update().clone();
            match state {
                State::Alive(proof) if self.clock.now().since(proof.sent) < proof.ttl / 2 => {
                    return Ok(Proof { sent: self.on(claim.clock(), proof.sent), ..proof });
                }
                State::Alive(_) => {
                    if let Some(refused) = lock(&self.refused).clone() {
                        return Err(refused);
                    }
                    self.renew_now();
                    claim.met(Obstacle::Unreachable("the session's keepalives are not answered".into()));
                }
                State::Opening(trouble) => {
                    if let Some(trouble) = trouble {
                        claim.met(Obstacle::Unreachable(trouble));
                    }
                }
                State::Ended(why) => return Err(why),
            }
            if changes.changed().await.is_err() {
                return Err(Failure::Refused(Refusal::NoLease));
            }
        }
    }

    /// Waits for a keepalive that was sent after now, and tells when it was.
    pub(crate) async fn renewed_from_now(&self, clock: &Clock) -> Result<Proof, Failure> {
        let now = self.clock.now();
        let mut changes = self.state.subscribe();
        loop {
            self.renew_now();
            match &*changes.borrow_and_update() {
                State::Alive(proof) if proof.sent >= now => {
                    return Ok(Proof { sent: self.on(clock, proof.sent), ..*proof });
                }
                State::Ended(why) => return Err(why.clone()),
                _ => {}
            }
            if changes.changed().await.is_err() {
                return Err(Failure::Refused(Refusal::NoLease));
            }
        }
    }
}

/// A claim's use of a lease: while there is one the lease is kept alive.
pub(crate) struct Use(Arc<Shared>);

impl Use {
    pub(crate) fn of(shared: &Arc<Shared>) -> Self {
        shared.uses.fetch_add(1, Ordering::SeqCst);
        Self::more(shared)
    }

    fn more(shared: &Arc<Shared>) -> Self {
        shared.users.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(shared))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0
    }
}

impl Clone for Use {
    fn clone(&self) -> Self {
        Self::more(&self.0)
    }
}

impl std::ops::Deref for Use {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        if self.0.users.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.wake.notify_one();
        }
    }
}
