//! Waiters of one name in one client, in the order in which they came.

use crate::sync::lock;
use crate::{Claim, ClaimId, LockName, Obstacle};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use tokio::sync::{Notify, Semaphore};

/// One lane a name that somebody in this client waits for or holds; none for others.
#[derive(Clone, Default)]
pub(crate) struct Lanes(Arc<Mutex<HashMap<LockName, Lane>>>);

/// Most names that are held have no waiter, so that what waiters need is made for the first of them.
#[derive(Default)]
struct Lane {
    holds: usize,
    queue: Option<Box<Queue>>,
}

struct Queue {
    turn: Arc<Semaphore>,
    freed: Arc<Notify>,
    waiters: HashMap<ClaimId, Claim>,
    /// The waiter that talks to the server.
    head: Option<ClaimId>,
    obstacle: Obstacle,
}

impl Default for Queue {
    fn default() -> Self {
        let (turn, freed) = (Arc::new(Semaphore::new(1)), Arc::new(Notify::new()));
        Self { turn, freed, waiters: HashMap::new(), head: None, obstacle: Obstacle::Silence }
    }
}

impl Queue {
    /// Whom to tell of `obstacle`: nobody if it is known, else those whom the server does not tell.
    fn meet(&mut self, obstacle: &Obstacle) -> Vec<Claim> {
        if self.obstacle == *obstacle {
            return Vec::new();
        }
        self.obstacle = obstacle.clone();
        let behind = self.waiters.iter().filter(|(id, _)| self.head != Some(**id));
        behind.map(|(_, claim)| claim.clone()).collect()
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
        let mut lanes = lock(&self.0);
        let lane = lanes.entry(claim.name().clone()).or_default();
        let queue = lane.queue.get_or_insert_default();
        // Who queues must hand the turn on whether or not it is polled; so must the head, from the first that queues.
        let head = queue.waiters.values().next().filter(|_| queue.waiters.len() == 1).cloned();
        let is_behind = !queue.waiters.is_empty();
        queue.waiters.insert(claim.id(), claim.clone());
        let obstacle = if lane.holds > 0 { held_here(claim) } else { queue.obstacle.clone() };
        let (turn, freed) = (Arc::clone(&queue.turn), Arc::clone(&queue.freed));
        drop(lanes);
        if is_behind {
            claim.queues();
        }
        if let Some(head) = head {
            head.queues();
        }
        claim.met(obstacle);
        Waiter { lanes: self.clone(), name: claim.name().clone(), id: claim.id(), turn, freed }
    }

    /// Notes that this client holds `name`, until what is returned is dropped.
    pub(crate) fn hold(&self, name: &LockName) -> LocalHold {
        let mut lanes = lock(&self.0);
        let lane = lanes.entry(name.clone()).or_default();
        lane.holds += 1;
        let mut told = None;
        if let Some(queue) = &mut lane.queue {
            // They are all of this client, and so is the holder.
            told = queue.waiters.values().next().map(held_here).map(|obstacle| (queue.meet(&obstacle), obstacle));
        }
        drop(lanes);
        if let Some((waiters, obstacle)) = told {
            tell(waiters, &obstacle);
        }
        LocalHold { lanes: self.clone(), name: name.clone() }
    }

    fn change(&self, name: &LockName, change: impl FnOnce(&mut Lane)) {
        let mut lanes = lock(&self.0);
        if let Some(lane) = lanes.get_mut(name) {
            change(lane);
            lane.queue.take_if(|queue| queue.waiters.is_empty());
            if lane.queue.is_none() && lane.holds == 0 {
                lanes.remove(name);
            }
        }
    }

    fn change_queue<R>(&self, name: &LockName, change: impl FnOnce(&mut Queue) -> R) -> Option<R> {
        let mut changed = None;
        self.change(name, |lane| changed = lane.queue.as_mut().map(|queue| change(queue)));
        changed
    }

    pub(crate) fn knows(&self, name: &LockName) -> bool {
        lock(&self.0).contains_key(name)
    }

    /// How many names have a lane.
    pub(crate) fn len(&self) -> usize {
        lock(&self.0).len()
    }
}

fn held_here(waiter: &Claim) -> Obstacle {
    Obstacle::Held(Some(Arc::clone(waiter.holder())))
}

/// A place in a lane; dropping it leaves the lane.
pub(crate) struct Waiter {
    lanes: Lanes,
    name: LockName,
    id: ClaimId,
    pub(crate) turn: Arc<Semaphore>,
    pub(crate) freed: Arc<Notify>,
}

impl Waiter {
    /// Whether this client itself holds the name.
    pub(crate) fn held_here(&self) -> bool {
        lock(&self.lanes.0).get(&self.name).is_some_and(|lane| lane.holds > 0)
    }

    /// It is this one's turn to talk to the server.
    pub(crate) fn lead(&self) {
        self.lanes.change_queue(&self.name, |queue| queue.head = Some(self.id));
    }

    /// Tells everyone in the lane what its head met, since only the head asks the server.
    pub(crate) fn met(&self, claim: &Claim, obstacle: &Obstacle) {
        claim.met(obstacle.clone());
        let waiters = self.lanes.change_queue(&self.name, |queue| queue.meet(obstacle));
        tell(waiters.unwrap_or_default(), obstacle);
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.lanes.change_queue(&self.name, |queue| {
            queue.waiters.remove(&self.id);
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
                queue.freed.notify_one();
            }
        });
    }
}

impl fmt::Debug for LocalHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LocalHold").field(&self.name).finish()
    }
}
