//! Requests that are ready at the same moment travel together, as commits of a group do.
//!
//! A request that finds nothing under way is sent at once, by its own caller, as
//! if there were no group. One that finds as many under way as may be, or many in
//! one trip, waits for that to come back; all that have gathered by then leave together.
//! So nobody waits for company, and under load a trip is shared by many.

mod renewals;

pub use renewals::{Renewals, Renewed, Renewing, RenewsTogether};

use crate::by_id::Taken;
use crate::sync::lock;
use crate::{Claim, by};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasherDefault, Hash};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Beside a trip that takes this long another may begin, however many it carries: what counts there is the way.
const SLOW: Duration = Duration::from_millis(5);

/// What is sent together, and how. An engine implements it once for what it groups.
pub trait Together: Send + Sync + 'static {
    /// Requests with the same key may share a trip. It should be a number or two, of which few are in use at a time.
    type Key: Copy + Eq + Hash + Send + Sync;
    /// One request.
    type Asked: Send + 'static;
    /// What it is answered, failures included.
    type Answer: Send + 'static;

    /// The most requests that share a trip: as many as a server works off without keeping others waiting.
    fn most(&self) -> usize;

    /// How many trips of one key are under way at a time at the most, before requests wait for each other.
    fn trips(&self) -> usize;

    /// Another trip begins only while those under way carry fewer requests than this, unless trips take 5 ms and more: where
    /// there are many, one trip for all of them is cheaper than two for half of them.
    fn few(&self) -> usize {
        usize::MAX
    }

    /// Only requests of the same kind share a trip: a trip carries those that are of the kind of who has waited longest.
    /// The default knows one kind.
    fn kind(&self, _asked: &Self::Asked) -> u8 {
        0
    }

    /// The request leaves `now`: from here on it may arrive, whatever becomes of who asked.
    /// Called in the moment in which it can no longer be taken back; must not block. False if it is not to
    /// leave any more, as when its time is over: then it never does.
    fn leaves(&self, asked: &mut Self::Asked, now: Instant) -> bool;

    /// Sends what has gathered, at least one, and [tells](Asking::tell) each its own answer. One that
    /// is dropped untold was not answered. It runs to its end in a task of its own.
    fn send(&self, key: Self::Key, gathered: Vec<Asking<Self>>) -> impl Future<Output = ()> + Send;
}

/// A request that was sent, and who waits for its answer.
pub struct Asking<T: Together + ?Sized> {
    /// What was asked.
    pub asked: T::Asked,
    /// None of one that was [posted](Group::post).
    told: Option<oneshot::Sender<Result<T::Answer, Unanswered>>>,
}

impl<T: Together + ?Sized> Asking<T> {
    /// The answer to this request. Who waited for it may have gone.
    pub fn tell(self, answer: T::Answer) {
        if let Some(told) = self.told {
            let _ = told.send(Ok(answer));
        }
    }

    fn never_left(self) {
        if let Some(told) = self.told {
            let _ = told.send(Err(Unanswered::NeverLeft));
        }
    }
}

/// Why there is no answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unanswered {
    /// It never left: nothing of it can arrive.
    NeverLeft,
    /// It left, and may have been worked off.
    NoAnswer,
}

/// The requests of one client, by key. Cloning gives the same group.
pub struct Group<T: Together>(Arc<Inner<T>>);

struct Inner<T: Together> {
    sends: T,
    lanes: Mutex<Lanes<T>>,
    /// Where trips run that are nobody's own.
    home: Option<Handle>,
}

struct Lanes<T: Together> {
    /// Those with a trip under way.
    by_key: HashMap<T::Key, Lane<T>, BuildHasherDefault<Taken>>,
    next: u64,
}

struct Lane<T: Together> {
    trips: usize,
    /// How many requests are under way.
    carried: usize,
    /// When the last of the trips that carry several left.
    since: Option<Instant>,
    /// The last of them to come back took long.
    was_slow: bool,
    /// In the order in which they came, and so in that of their numbers.
    waiting: VecDeque<(u64, Asking<T>)>,
}

impl<T: Together> Default for Lane<T> {
    fn default() -> Self {
        Self { trips: 0, carried: 0, since: None, was_slow: false, waiting: VecDeque::new() }
    }
}

impl<T: Together> Lane<T> {
    /// Whether one more may travel, beside so many others.
    fn lets(&self, others: usize, sends: &T) -> bool {
        let is_slow = || self.was_slow || self.since.is_some_and(|since| since.elapsed() >= SLOW);
        others < sends.trips() && (others == 0 || self.carried < sends.few() || is_slow())
    }
}

impl<T: Together> Lanes<T> {
    /// A trip is over, and nobody goes on another.
    fn ended(&mut self, key: T::Key) {
        if let Some(lane) = self.by_key.get_mut(&key) {
            lane.trips = lane.trips.saturating_sub(1);
            if lane.trips == 0 && lane.waiting.is_empty() {
                self.by_key.remove(&key);
            }
        }
    }
}

/// How a request is to travel.
#[must_use = "the request was not sent yet"]
pub enum Turn<'a, T: Together> {
    /// Alone, by whoever asked, now.
    Alone(Alone<'a, T>),
    /// With others: the answer comes from there.
    Together(Ticket<'a, T>),
}

impl<T: Together> Group<T> {
    /// A group in the runtime of this thread; without one every request travels alone.
    pub fn new(sends: T) -> Self {
        let lanes = Mutex::new(Lanes { by_key: HashMap::default(), next: 0 });
        Self(Arc::new(Inner { sends, lanes, home: Handle::try_current().ok() }))
    }

    /// What sends the requests.
    #[must_use]
    pub fn sends(&self) -> &T {
        &self.0.sends
    }

    /// How many requests wait to leave.
    #[must_use]
    pub fn waiting(&self) -> usize {
        lock(&self.0.lanes).by_key.values().map(|lane| lane.waiting.len()).sum()
    }

    /// Asks how a request is to travel. Only what waits for others is made by `asked`.
    ///
    /// # Cancel safety
    /// Dropping a [`Ticket`] takes the request back if it has not left; dropping
    /// [`Alone`] lets the next ones leave, or leaves them to the other trip.
    pub fn join(&self, key: T::Key, asked: impl FnOnce() -> T::Asked) -> Turn<'_, T> {
        let mut lanes = lock(&self.0.lanes);
        let lane = lanes.by_key.entry(key).or_default();
        // Nobody overtakes those who wait.
        if (lane.waiting.is_empty() && lane.lets(lane.trips, &self.0.sends)) || self.0.home.is_none() {
            lane.trips += 1;
            lane.carried += 1;
            return Turn::Alone(Alone { group: self, key });
        }
        drop(lanes);
        // Outside of the lock, since it is some work; a trip that has come back meanwhile is looked for again.
        let (told, answer) = oneshot::channel();
        let number = self.gather(key, Asking { asked: asked(), told: Some(told) });
        Turn::Together(Ticket { group: self, key, number, waits: true, answer })
    }

    /// Leaves a request here for whoever `asked` knows: it is told when the trip comes back, and nobody needs a task
    /// to wait for that. It leaves at once if nothing is under way, with all that were posted in the same moment. One that is
    /// dropped has no answer; before [`leaves`](Together::leaves) was called, or where that said no, it never left.
    pub fn post(&self, key: T::Key, asked: T::Asked) {
        if self.0.home.is_some() {
            self.gather(key, Asking { asked, told: None });
        }
    }

    /// Puts a request among those who wait; its number there.
    fn gather(&self, key: T::Key, asking: Asking<T>) -> u64 {
        let mut lanes = lock(&self.0.lanes);
        lanes.next += 1;
        let number = lanes.next;
        let lane = lanes.by_key.entry(key).or_default();
        lane.waiting.push_back((number, asking));
        let departs = lane.lets(lane.trips, &self.0.sends);
        lane.trips += usize::from(departs);
        drop(lanes);
        if departs {
            self.depart(key);
        }
        number
    }

    /// Begins a trip that is counted already.
    fn depart(&self, key: T::Key) {
        let trip = Trip { group: self.clone(), key, carries: 0, over: false };
        if let Some(home) = &self.0.home {
            home.spawn(trip.run());
        }
    }

    /// A request's own trip has come back: those who wait leave on the next one, or on that of others.
    fn back(&self, key: T::Key) {
        let mut lanes = lock(&self.0.lanes);
        let Some(lane) = lanes.by_key.get_mut(&key) else { return };
        lane.carried = lane.carried.saturating_sub(1);
        if !lane.waiting.is_empty() && lane.lets(lane.trips.saturating_sub(1), &self.0.sends) {
            drop(lanes);
            return self.depart(key);
        }
        lanes.ended(key);
    }

    /// Takes what leaves now, after a trip that carried `before` and had `left` then; nothing ends the trip.
    fn take(&self, key: T::Key, before: usize, left: Instant) -> Vec<Asking<T>> {
        let (now, mut over) = (Instant::now(), Vec::new());
        let mut lanes = lock(&self.0.lanes);
        let Some(lane) = lanes.by_key.get_mut(&key) else { return Vec::new() };
        lane.carried = lane.carried.saturating_sub(before);
        if before > 0 {
            lane.was_slow = now.duration_since(left) >= SLOW;
        }
        if !lane.lets(lane.trips.saturating_sub(1), &self.0.sends) {
            // Whoever waits goes with the others, who are many.
            lanes.ended(key);
            return Vec::new();
        }
        let most = self.0.sends.most().max(1);
        let mut gathered = Vec::with_capacity(lane.waiting.len().min(most));
        let (mut kind, mut others) = (None, VecDeque::new());
        while gathered.len() < most
            && let Some((number, mut asking)) = lane.waiting.pop_front()
        {
            let its = self.0.sends.kind(&asking.asked);
            if its != *kind.get_or_insert(its) {
                others.push_back((number, asking));
                continue;
            }
            let leaves = self.0.sends.leaves(&mut asking.asked, now);
            if leaves { &mut gathered } else { &mut over }.push(asking);
        }
        if !others.is_empty() {
            others.append(&mut lane.waiting);
            lane.waiting = others;
        }
        lane.carried += gathered.len();
        if !gathered.is_empty() {
            lane.since = Some(now);
        }
        if gathered.is_empty() {
            lanes.ended(key);
        }
        drop(lanes);
        over.into_iter().for_each(Asking::never_left);
        gathered
    }
}

/// A request's own trip. Dropping it says that it is over.
pub struct Alone<'a, T: Together> {
    group: &'a Group<T>,
    key: T::Key,
}

impl<T: Together> Drop for Alone<'_, T> {
    fn drop(&mut self) {
        self.group.back(self.key);
    }
}

/// Trips of those who have gathered, one after the other, until nobody waits.
struct Trip<T: Together> {
    group: Group<T>,
    key: T::Key,
    /// How many requests it has with it.
    carries: usize,
    over: bool,
}

impl<T: Together> Trip<T> {
    async fn run(mut self) {
        let mut left = Instant::now();
        loop {
            let gathered = self.group.take(self.key, self.carries, left);
            (self.carries, left) = (gathered.len(), Instant::now());
            if gathered.is_empty() {
                self.over = true;
                return;
            }
            self.group.0.sends.send(self.key, gathered).await;
            // Whoever was told just now and is ready to go on comes along.
            tokio::task::yield_now().await;
        }
    }
}

impl<T: Together> Drop for Trip<T> {
    /// Early when the runtime has ended or the sender has panicked: then nobody may wait for another trip.
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let mut lanes = lock(&self.group.0.lanes);
        let Some(lane) = lanes.by_key.get_mut(&self.key) else { return };
        let left_behind = std::mem::take(&mut lane.waiting);
        lane.carried = lane.carried.saturating_sub(self.carries);
        lanes.ended(self.key);
        drop(lanes);
        left_behind.into_iter().for_each(|(_, asking)| asking.never_left());
    }
}

/// A place among those who wait.
#[must_use = "dropping it takes the request back"]
pub struct Ticket<'a, T: Together> {
    group: &'a Group<T>,
    key: T::Key,
    number: u64,
    /// It may still be among them.
    waits: bool,
    answer: oneshot::Receiver<Result<T::Answer, Unanswered>>,
}

impl<T: Together> Ticket<'_, T> {
    /// The answer, if it comes by `deadline`. `of` is as for [`by`].
    ///
    /// # Errors
    /// Why it did not.
    ///
    /// # Cancel safety
    /// Dropping the future takes the request back, if it has not left.
    pub async fn answer(mut self, deadline: Instant, of: Option<&Claim>) -> Result<T::Answer, Unanswered> {
        match by(deadline, of, &mut self.answer).await {
            Some(told) => {
                self.waits = false;
                told.unwrap_or(Err(Unanswered::NoAnswer))
            }
            None if self.take_back() => Err(Unanswered::NeverLeft),
            None => self.answer.try_recv().unwrap_or(Err(Unanswered::NoAnswer)),
        }
    }

    /// True if it had not left, and now never will.
    fn take_back(&self) -> bool {
        let mut lanes = lock(&self.group.0.lanes);
        let taken = lanes.by_key.get_mut(&self.key).and_then(|lane| {
            let at = lane.waiting.binary_search_by_key(&self.number, |(number, _)| *number).ok()?;
            lane.waiting.remove(at)
        });
        drop(lanes);
        taken.is_some()
    }
}

impl<T: Together> Drop for Ticket<'_, T> {
    fn drop(&mut self) {
        if self.waits {
            self.take_back();
        }
    }
}

impl<T: Together> Clone for Group<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Together> fmt::Debug for Group<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}

impl<T: Together + ?Sized> fmt::Debug for Asking<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asking").finish_non_exhaustive()
    }
}

impl<T: Together> fmt::Debug for Alone<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alone").finish_non_exhaustive()
    }
}

impl<T: Together> fmt::Debug for Ticket<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("number", &self.number).finish_non_exhaustive()
    }
}

impl<T: Together> fmt::Debug for Turn<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alone(alone) => alone.fmt(f),
            Self::Together(ticket) => ticket.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests;
