//! A claim: one wish to hold one lock, minted before the first byte is sent.

use crate::clock::nanos;
use crate::ledger::WeakLedger;
use crate::observe::Observer;
use crate::options::{check_delay, check_ttl};
use crate::request::Requests;
use crate::rescue::Moves;
use crate::sync::lock;
use crate::{ClaimId, Clock, Error, LockName, Moment, Request, Result};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tracing::Span;

/// How the lock is to be held. Shared and permit modes will come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// By one holder at a time.
    #[default]
    Exclusive,
}

/// The last thing that stood between a claim and its lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Obstacle {
    /// Nothing has been heard yet: no answer came.
    #[default]
    Silence,
    /// Another claim holds the lock, and its holder is known; or the lock is not free, and no holder is known.
    Held(Option<Arc<str>>),
    /// The service could not be reached, or did not say yes or no.
    Unreachable(Arc<str>),
}

/// What a claim asks for; [`mint`](Terms::mint) makes the claim.
///
/// Clients do this for you. Engine authors use it in their tests.
#[derive(Clone, Debug)]
pub struct Terms {
    pub(crate) name: LockName,
    pub(crate) ttl: Duration,
    pub(crate) lock_delay: Duration,
    pub(crate) holder: Arc<str>,
    pub(crate) note: Option<Arc<str>>,
    pub(crate) mode: Mode,
    pub(crate) clock: Clock,
    pub(crate) reserve: u32,
    pub(crate) renews: bool,
}

impl Terms {
    /// Terms for `name` with a ttl of `ttl`, no lock delay, no note, on the system's clock.
    #[must_use]
    pub fn new(name: LockName, ttl: Duration) -> Self {
        let (lock_delay, mode) = (Duration::ZERO, Mode::Exclusive);
        let clock = Clock::system();
        Self { name, ttl, lock_delay, holder: "".into(), note: None, mode, clock, reserve: 0, renews: true }
    }

    /// Keeps the lock from others for `delay` after the holder's deadline, when it is freed by failure.
    #[must_use]
    pub fn with_lock_delay(mut self, delay: Duration) -> Self {
        self.lock_delay = delay;
        self
    }

    /// Who asks: shown to others by `inspect`.
    #[must_use]
    pub fn with_holder(mut self, holder: impl Into<Arc<str>>) -> Self {
        self.holder = holder.into();
        self
    }

    /// A note stored with the lock, a trace id for instance.
    #[must_use]
    pub fn with_note(mut self, note: impl Into<Arc<str>>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// The clock to count on.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Asks for a grant that reserves so many tokens besides its own, for those to whom the lock passes on.
    #[must_use]
    pub fn with_reserve(mut self, tokens: u32) -> Self {
        self.reserve = tokens;
        self
    }

    /// The hold is a fixed lease, which nobody renews.
    #[must_use]
    pub fn without_renewal(mut self) -> Self {
        self.renews = false;
        self
    }

    /// A claim on these terms, under a fresh random id. Parts of a millisecond round up.
    ///
    /// # Errors
    /// `InvalidConfig` for a ttl or lock delay out of bounds; `Engine` if the
    /// system has no randomness to give.
    pub fn mint(mut self) -> Result<Claim> {
        self.ttl = check_ttl(self.ttl)?;
        self.lock_delay = check_delay(self.lock_delay)?;
        self.mint_in(None)
    }

    pub(crate) fn mint_in(self, origin: Option<Origin>) -> Result<Claim> {
        Claim::with_family(self, Arc::new(Family { origin, ..Family::default() }))
    }
}

/// The client that a claim is of, and the trace that it belongs to.
#[derive(Clone)]
pub(crate) struct Origin {
    pub(crate) ledger: WeakLedger,
    pub(crate) observer: Arc<Observer>,
    pub(crate) span: Span,
}

/// More than twice as long as what lies with its caller is left there.
const FAR: Duration = Duration::from_millis(100);

/// For claims of no client.
static NO_SPAN: Span = Span::none();

/// One wish to hold one lock.
///
/// Every request about it carries its id, so that a request may be sent again
/// and means the same, and so that whatever it left behind can be undone
/// without knowing whether it arrived. Cloning is cheap and gives the same claim.
#[derive(Clone)]
pub struct Claim {
    attempt: Arc<Attempted>,
    family: Arc<Family>,
}

/// One attempt of an acquisition: what its id stands for.
pub(crate) struct Attempted {
    id: ClaimId,
    terms: Terms,
    pub(crate) requests: Requests,
    /// The longest that a server was asked to keep the hold, in nanoseconds.
    longest: AtomicU64,
}

/// What all attempts of one acquisition share.
#[derive(Default)]
struct Family {
    obstacle: Mutex<Obstacle>,
    latest: Mutex<Option<Arc<Attempted>>>,
    origin: Option<Origin>,
    /// What acquires, inside the caller's future at first.
    driven: Mutex<Option<Weak<dyn Moves>>>,
    /// It is there still.
    lies: AtomicBool,
}

/// In the place of a client, for claims that are kept for what they say alone.
#[derive(Default)]
pub(crate) struct Nobody(Arc<Family>);

impl fmt::Debug for Nobody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nobody")
    }
}

impl Claim {
    fn with_family(terms: Terms, family: Arc<Family>) -> Result<Self> {
        let longest = AtomicU64::new(nanos(terms.ttl.saturating_add(terms.lock_delay)));
        let attempt = Arc::new(Attempted { id: ClaimId::random()?, terms, requests: Requests::default(), longest });
        *lock(&family.latest) = Some(Arc::clone(&attempt));
        Ok(Self { attempt, family })
    }

    /// The lock's name.
    #[must_use]
    pub fn name(&self) -> &LockName {
        &self.attempt.terms.name
    }

    /// The claim's id. Every compare at the server is by it.
    #[must_use]
    pub fn id(&self) -> ClaimId {
        self.attempt.id
    }

    /// The time to live that the holder counts: whole milliseconds, 50 ms to 7 days.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.attempt.terms.ttl
    }

    /// How much longer than the holder's deadline the server keeps a lock that was freed by failure.
    #[must_use]
    pub fn lock_delay(&self) -> Duration {
        self.attempt.terms.lock_delay
    }

    /// The time to live that the server is to count: ttl and lock delay together.
    #[must_use]
    pub fn server_ttl(&self) -> Duration {
        self.ttl().saturating_add(self.lock_delay())
    }

    /// Who asks.
    #[must_use]
    pub fn holder(&self) -> &Arc<str> {
        &self.attempt.terms.holder
    }

    /// The note to store with the lock.
    #[must_use]
    pub fn note(&self) -> Option<&Arc<str>> {
        self.attempt.terms.note.as_ref()
    }

    /// How the lock is to be held.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.attempt.terms.mode
    }

    /// How many tokens the grant is to reserve besides its own; 0 unless the lock may
    /// [pass on](crate::AcquireOptions::cohort).
    ///
    /// The engine raises its counter by so many more in the same step, keeps the last of
    /// them with the hold, and tells it with [`Grant::with_reserved`](crate::Grant::with_reserved).
    /// Asked again under the same id it tells the same. An engine that cannot do so reserves
    /// none, and has no [`Capability::Cohort`](crate::Capability::Cohort).
    #[must_use]
    pub fn reserve(&self) -> u32 {
        self.attempt.terms.reserve
    }

    /// Whether the hold is going to be renewed. What a fixed lease has lost before it is handed out it never gets back.
    #[must_use]
    pub fn renews(&self) -> bool {
        self.attempt.terms.renews
    }

    /// The clock to take `sent_at` from.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.attempt.terms.clock
    }

    /// The present moment on the claim's clock: read it *before* a request is sent.
    #[must_use]
    pub fn now(&self) -> Moment {
        self.attempt.terms.clock.now()
    }

    /// Begins a request that could take the lock or a place in its queue.
    ///
    /// Keep the [`Request`] across the await and say [`answered`](Request::answered)
    /// when an answer came. One that is dropped instead leaves the claim
    /// [unanswered](Self::is_unanswered) for good. An id under which none was begun counts
    /// as [never sent](Self::was_sent), and may not be undone.
    pub fn request(&self) -> Request {
        Request::begin(&self.attempt)
    }

    /// Whether a request of this id was sent whose answer never came, so that it
    /// may still arrive: undo and release must then void the id at the server.
    #[must_use]
    pub fn is_unanswered(&self) -> bool {
        self.attempt.requests.unanswered()
    }

    /// Whether anything was ever sent under this id.
    #[must_use]
    pub fn was_sent(&self) -> bool {
        self.attempt.requests.any()
    }

    /// How many requests were begun under this id.
    #[must_use]
    pub fn requests(&self) -> u32 {
        self.attempt.requests.begun()
    }

    /// Whether a request of this id is on its way.
    pub(crate) fn is_under_way(&self) -> bool {
        self.attempt.requests.in_flight()
    }

    /// Ends when no request of this id is on its way.
    pub(crate) async fn settled(&self) {
        self.attempt.requests.settled().await;
    }

    /// Notes what stood in the way, so that giving up can say so.
    pub fn met(&self, obstacle: Obstacle) {
        if matches!(obstacle, Obstacle::Held(_)) {
            self.queues();
        }
        let last = std::mem::replace(&mut *lock(&self.family.obstacle), obstacle.clone());
        if let (Obstacle::Held(holder), Some(origin)) = (&obstacle, &self.family.origin)
            && last != obstacle
        {
            origin.observer.contended(self, holder.as_deref());
        }
    }

    /// Notes what acquires: it goes on without its caller once the claim [queues](Self::queues). None when it is done.
    pub(crate) fn driven_by(&self, driven: Option<Weak<dyn Moves>>) {
        self.family.lies.store(driven.is_some(), Ordering::SeqCst);
        let before = std::mem::replace(&mut *lock(&self.family.driven), driven);
        drop(before);
    }

    fn driven(&self) -> Option<Arc<dyn Moves>> {
        lock(&self.family.driven).as_ref().and_then(Weak::upgrade)
    }

    /// What is done for it goes on without its caller, from now on or from the end of the poll that is under way.
    pub(crate) fn moves_over(&self) {
        self.family.lies.store(false, Ordering::SeqCst);
    }

    /// Waits for another, or has others behind it: whatever becomes of the caller, its turn must pass.
    pub(crate) fn queues(&self) {
        if let Some(driven) = self.driven() {
            driven.move_over();
        }
    }

    /// This claim if `limit` is far: 100 ms or more, so that it need not be seen to before what is done for the claim is taken
    /// over from its caller. For [`by`](crate::by).
    #[must_use]
    pub fn far(&self, limit: Duration) -> Option<&Self> {
        (limit >= FAR).then_some(self)
    }

    /// Whether what is done for this claim just now, an acquire or its release, lies in its caller's future and is watched by
    /// the client: if it is not done within 40 ms it goes on in a task of the client's, and is polled there. Until then what
    /// rings later need not be set.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        !self.is_left_alone()
    }

    /// Whether what acquires goes on without its caller, who may not be there to take the grant.
    pub(crate) fn is_left_alone(&self) -> bool {
        !self.family.lies.load(Ordering::SeqCst)
    }

    /// The last obstacle met by any attempt of this acquisition.
    #[must_use]
    pub fn obstacle(&self) -> Obstacle {
        lock(&self.family.obstacle).clone()
    }

    /// Gives this attempt up and makes another under a new id.
    ///
    /// The old id is entered in the client's undo ledger: it is dead from here
    /// on, and whatever it left at the server is undone in the background.
    ///
    /// # Errors
    /// `Engine` if the system has no randomness to give.
    pub fn next_attempt(&self) -> Result<Self> {
        if let Some(origin) = &self.family.origin {
            origin.ledger.undo(self.clone());
        }
        self.next_attempt_undone()
    }

    /// Makes another attempt under a new id, when the engine itself has undone
    /// this one, so that nothing of it is left.
    ///
    /// # Errors
    /// `Engine` if the system has no randomness to give.
    pub fn next_attempt_undone(&self) -> Result<Self> {
        Self::with_family(self.attempt.terms.clone(), Arc::clone(&self.family))
    }

    /// The same wish under a new id, which no undo of this one is for.
    pub(crate) fn renamed(&self) -> Result<Self> {
        self.attempt.terms.clone().mint_in(self.family.origin.clone())
    }

    /// The newest attempt of this acquisition: this claim, or one made of it since.
    #[must_use]
    pub fn latest(&self) -> Self {
        let latest = lock(&self.family.latest).clone();
        Self { attempt: latest.unwrap_or_else(|| Arc::clone(&self.attempt)), family: Arc::clone(&self.family) }
    }

    /// Tells that what the claim left at the server is undone, or why it is left to run out.
    pub(crate) fn abandoned(&self, failure: Option<&Error>) {
        if let Some(origin) = &self.family.origin {
            origin.observer.abandoned(self, failure);
        }
    }

    /// The span in which the claim was made.
    pub(crate) fn span(&self) -> &Span {
        self.family.origin.as_ref().map_or(&NO_SPAN, |origin| &origin.span)
    }

    /// The same claim without its client, for a server in this process to keep.
    pub(crate) fn detached(&self, nobody: &Nobody) -> Self {
        Self { attempt: Arc::clone(&self.attempt), family: Arc::clone(&nobody.0) }
    }

    /// Notes that a server was asked to keep the hold for `server_ttl`.
    pub(crate) fn asked_for(&self, server_ttl: Duration) {
        self.attempt.longest.fetch_max(nanos(server_ttl), Ordering::SeqCst);
    }

    /// The longest that a server was ever asked to keep a hold of this id.
    pub(crate) fn longest_server_ttl(&self) -> Duration {
        Duration::from_nanos(self.attempt.longest.load(Ordering::SeqCst))
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim")
            .field("name", self.name())
            .field("id", &self.id())
            .field("ttl", &self.ttl())
            .field("lock_delay", &self.lock_delay())
            .field("holder", self.holder())
            .field("note", &self.note())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim() -> Claim {
        Terms::new(LockName::new("a").unwrap(), Duration::from_secs(1)).mint().unwrap()
    }

    #[test]
    fn ids_differ_and_print_in_full() {
        let (a, b) = (claim(), claim());
        assert_ne!(a.id(), b.id());
        assert_eq!(a.id().to_string().len(), 32);
        assert_eq!(ClaimId::from_bytes(a.id().to_bytes()), a.id());
    }

    #[test]
    fn attempts_share_their_obstacle_and_know_the_latest() {
        let first = claim();
        let second = first.next_attempt().unwrap();
        second.met(Obstacle::Held(None));
        assert_eq!(first.obstacle(), Obstacle::Held(None));
        assert_eq!(first.latest().id(), second.id());
        let id = second.id();
        drop(second);
        assert_eq!(first.latest().id(), id, "even when nobody else knows it any more");
    }
}
