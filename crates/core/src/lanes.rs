//! Waiters of one name in one client, in the order in which they came.

mod waiters;

use crate::sync::lock;
use crate::{Claim, ClaimId, LockName, Obstacle};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use waiters::Waiters;

/// One lane a name that somebody in this client waits for or holds; none for others.
#[derive(Clone, Default)]
pub(crate) struct Lanes(Arc<Mutex<ByName>>);

#[derive(Default)]
struct ByName {
    lanes: HashMap<LockName, Lane>,
    /// Queues that nobody is in, as new: what each waiter needs, and for a moment only.
    #[expect(clippy::vec_box, reason = "a queue keeps its place in memory")]
    spare: Vec<Box<Queue>>,
}

/// No more than these are kept.
const SPARE: usize = 64;

impl ByName {
    /// A queue is over.
    fn keep(&mut self, mut queue: Box<Queue>) {
        if self.spare.len() < SPARE
            && let Some(calls) = Arc::get_mut(&mut queue.calls)
        {
            *calls = Calls::default();
            (queue.waiters, queue.head, queue.obstacle) = (Waiters::default(), None, Obstacle::Silence);
            self.spare.push(queue);
        }
    }
}

/// Most names that are held have no waiter, so that what waiters need is made for the first of them;
/// and most waiters are alone, and granted at once, so that it is little.
#[derive(Default)]
struct Lane {
    holds: usize,
    queue: Option<Box<Queue>>,
}

#[derive(Default)]
struct Queue {
    calls: Arc<Calls>,
    waiters: Waiters,
    /// The waiter that talks to the server.
    head: Option<ClaimId>,
    obstacle: Obstacle,
}

/// What waiters wait for.
pub(crate) struct Calls {
    pub(crate) turn: Semaphore,
    pub(crate) freed: Notify,
}

impl Default for Calls {
    fn default() -> Self {
        Self { turn: Semaphore::new(1), freed: Notify::new() }
    }
}

impl Queue {
    /// Whom to tell of `obstacle`: nobody if it is known, else those whom the server does not tell.
    fn meet(&mut self, obstacle: &Obstacle) -> Vec<Claim> {
        if self.obstacle == *obstacle {
            return Vec::new();
        }
        self.obstacle = obstacle.clone();
        self.waiters.iter().filter(|claim| self.head != Some(claim.id())).cloned().collect()
    }
}

/// Outside the lanes' mutex, since it may run a subscriber's code.
fn tell(waiters: Vec<Claim>, obstacle: &Obstacle) {
    for waiter in waiters {
        waiter.met(obstacle.clone());
    }
}

impl Lanes {
    /// Takes the last place in the lane of the claim's name.
    pub(crate) fn join(&self, claim: &Claim) -> Waiter {
        let mut all = lock(&self.0);
        let ByName { lanes, spare } = &mut *all;
        let lane = lanes.entry(claim.name().clone()).or_default();
        let queue = lane.queue.get_or_insert_with(|| spare.pop().unwrap_or_default());
        // Who queues must hand the turn on whether or not it is polled; so must the head, from the first that queues.
        let head = queue.waiters.alone().cloned();
        let is_behind = !queue.waiters.is_empty();
        queue.waiters.insert(claim.clone());
        // Nobody has the turn, so that whoever is alone has it at once: it need not come back to say so.
        let leads = (!is_behind).then_some(lane.holds > 0);
        if leads.is_some() {
            queue.head = Some(claim.id());
        }
        let obstacle = if lane.holds > 0 { held_here(claim) } else { queue.obstacle.clone() };
        let calls = Arc::clone(&queue.calls);
        drop(all);
        if is_behind {
            claim.queues();
        }
        if let Some(head) = head {
            head.queues();
        }
        claim.met(obstacle);
        let place = Place { lanes: self.clone(), name: claim.name().clone(), id: claim.id() };
        Waiter { calls, leads, place }
    }

    /// Notes that this client holds `name`, until what is returned is dropped.
    pub(crate) fn hold(&self, name: &LockName) -> LocalHold {
        let mut all = lock(&self.0);
        let lane = all.lanes.entry(name.clone()).or_default();
        lane.holds += 1;
        let mut told = None;
        if let Some(queue) = &mut lane.queue {
            // They are all of this client, and so is the holder.
            let obstacle = queue.waiters.iter().next().map(held_here);
            told = obstacle.map(|obstacle| (queue.meet(&obstacle), obstacle));
        }
        drop(all);
        if let Some((waiters, obstacle)) = told {
            tell(waiters, &obstacle);
        }
        LocalHold { lanes: self.clone(), name: name.clone() }
    }

    fn change(&self, name: &LockName, change: impl FnOnce(&mut Lane)) {
        let mut all = lock(&self.0);
        if let Some(lane) = all.lanes.get_mut(name) {
            change(lane);
            let over = lane.queue.take_if(|queue| queue.waiters.is_empty());
            if lane.queue.is_none() && lane.holds == 0 {
                all.lanes.remove(name);
            }
            if let Some(over) = over {
                all.keep(over);
            }
        }
    }

    fn change_queue<R>(&self, name: &LockName, change: impl FnOnce(&mut Queue) -> R) -> Option<R> {
        let mut changed = None;
        self.change(name, |lane| changed = lane.queue.as_mut().map(|queue| change(queue)));
        changed
    }

    pub(crate) fn knows(&self, name: &LockName) -> bool {
        lock(&self.0).lanes.contains_key(name)
    }

    /// How many names have a lane.
    pub(crate) fn len(&self) -> usize {
        lock(&self.0).lanes.len()
    }
}

fn held_here(waiter: &Claim) -> Obstacle {
    Obstacle::Held(Some(Arc::clone(waiter.holder())))
}

/// Who waits in a lane; dropping it leaves the lane.
pub(crate) struct Waiter {
    pub(crate) calls: Arc<Calls>,
    /// It came to an empty lane, so that the turn is its own, and whether this client held the name then.
    leads: Option<bool>,
    /// Dropped last: what the queue had for it is let go of by then.
    place: Place,
}

/// A place in a lane.
struct Place {
    lanes: Lanes,
    name: LockName,
    id: ClaimId,
}

impl Waiter {
    /// Whether this client itself holds the name.
    pub(crate) fn held_here(&self) -> bool {
        let Place { lanes, name, .. } = &self.place;
        lock(&lanes.0).lanes.get(name).is_some_and(|lane| lane.holds > 0)
    }

    /// Waits for the turn to talk to the server, and tells whether this client itself holds the name then. `None` never
    /// comes: nobody closes the queue.
    pub(crate) async fn turn(&self) -> Option<(SemaphorePermit<'_>, bool)> {
        // Whoever came after it may have been the first to ask, and have heard of a release since.
        if let (Some(held_here), Ok(turn)) = (self.leads, self.calls.turn.try_acquire()) {
            return Some((turn, held_here && self.held_here()));
        }
        let turn = self.calls.turn.acquire().await.ok()?;
        let Place { lanes, name, id } = &self.place;
        lanes.change_queue(name, |queue| queue.head = Some(*id));
        Some((turn, self.held_here()))
    }

    /// Tells everyone in the lane what its head met, since only the head asks the server.
    pub(crate) fn met(&self, claim: &Claim, obstacle: &Obstacle) {
        claim.met(obstacle.clone());
        let waiters = self.place.lanes.change_queue(&self.place.name, |queue| queue.meet(obstacle));
        tell(waiters.unwrap_or_default(), obstacle);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.lanes.change_queue(&self.name, |queue| {
            queue.waiters.remove(self.id);
            queue.head.take_if(|head| *head == self.id);
        });
    }
}

/// A hold of this client's; dropping it wakes the first local waiter.
///
/// An engine keeps it in its lease, so that it goes when the lease goes.
#[must_use = "dropping it says that the hold is over"]
pub struct LocalHold {
    lanes: Lanes,
    name: LockName,
}

impl Drop for LocalHold {
    fn drop(&mut self) {
        self.lanes.change(&self.name, |lane| {
            lane.holds = lane.holds.saturating_sub(1);
            if let Some(queue) = &lane.queue {
                queue.calls.freed.notify_one();
            }
        });
    }
}

impl fmt::Debug for LocalHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LocalHold").field(&self.name).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LockName, Terms};
    use std::time::Duration;

    /// Whoever was quicker has heard of the release in its stead, and has gone without the lock.
    #[tokio::test]
    async fn who_came_first_and_was_overtaken_waits_for_no_hold_that_is_over() {
        let (name, lanes) = (LockName::new("a").unwrap(), Lanes::default());
        let claim = || Terms::new(name.clone(), Duration::from_secs(1)).mint().unwrap();
        let hold = lanes.hold(&name);
        let first = lanes.join(&claim());
        let second = lanes.join(&claim());
        let (turn, held_here) = second.turn().await.unwrap();
        assert!(held_here);
        drop(hold);
        second.calls.freed.notified().await;
        drop(turn);
        drop(second);
        let (_turn, held_here) = first.turn().await.unwrap();
        assert!(!held_here);
    }

    /// Whoever comes next finds the queue as new, however the one before was left.
    #[tokio::test]
    async fn what_one_queue_has_heard_is_unknown_to_the_next() {
        let (names, lanes) = (["a", "b"].map(|name| LockName::new(name).unwrap()), Lanes::default());
        let claim = |name: &LockName| Terms::new(name.clone(), Duration::from_secs(1)).mint().unwrap();
        let first = lanes.join(&claim(&names[0]));
        first.met(&claim(&names[0]), &Obstacle::Held(None));
        // Heard by nobody, and kept for whoever listens.
        drop(lanes.hold(&names[0]));
        drop(first);
        assert_eq!((lanes.len(), lock(&lanes.0).spare.len()), (0, 1));
        let next = claim(&names[1]);
        let second = lanes.join(&next);
        assert!(lock(&lanes.0).spare.is_empty() && next.obstacle() == Obstacle::Silence);
        let heard = tokio::time::timeout(Duration::from_millis(20), second.calls.freed.notified());
        assert!(heard.await.is_err());
        assert!(!second.turn().await.unwrap().1);
        let third = lanes.join(&claim(&names[1]));
        drop(second);
        assert!(!third.turn().await.unwrap().1, "the turn was given back");
    }
}
