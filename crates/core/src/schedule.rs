//! When which hold needs looking at, and the ticker that looks.
//!
//! tokio's timers stand still while the machine is suspended, deadlines do not.
//! So while anything is held one ticker a client reads the clock at least every
//! 250 ms. No hold has a timer or a task of its own before its first renewal.

use crate::degraded::{Watch, look};
use crate::hold::Hold;
use crate::sync::lock;
use crate::{Clock, LockName, LossReason, Moment};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;

const TICK: Duration = Duration::from_millis(250);
/// By how much the clock must outrun the timers to count as a suspend.
const JUMP: Duration = Duration::from_millis(50);

/// A place in the schedule: when, and a number that makes it unique.
pub(crate) type Slot = (Moment, u64);

#[derive(Default)]
pub(crate) struct Schedule {
    due: Mutex<Due>,
    earlier: Notify,
    /// Rung when the clock has outrun the timers: whoever sleeps until a moment looks again.
    pub(crate) jumped: Arc<Notify>,
}

#[derive(Default)]
struct Due {
    holds: BTreeMap<Slot, Arc<Hold>>,
    numbers: u64,
    /// When the ticker will look next; none while it sleeps because nothing is held.
    wakes: Option<Moment>,
    closed: bool,
}

impl Schedule {
    /// Puts `hold` where it is due next, moving it if it stands elsewhere; not once it is retired.
    pub(crate) fn put(&self, hold: &Arc<Hold>, when: Moment) {
        let mut due = lock(&self.due);
        if due.closed {
            drop(due);
            hold.orphan();
            return;
        }
        if hold.is_retired() {
            return;
        }
        due.numbers += 1;
        let slot = (when, due.numbers);
        if let Some(old) = hold.set_slot(Some(slot)) {
            due.holds.remove(&old);
        }
        due.holds.insert(slot, Arc::clone(hold));
        if due.wakes.is_none_or(|wakes| when < wakes) {
            self.earlier.notify_one();
        }
    }

    pub(crate) fn remove(&self, hold: &Hold) {
        let mut due = lock(&self.due);
        let removed = hold.set_slot(None).and_then(|slot| due.holds.remove(&slot));
        drop(due);
        // Outside the lock: it may be the last reference, whose drop runs an engine's code.
        drop(removed);
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.due).holds.len()
    }

    /// Whether any hold here is of `name`. Asked rarely, so that holding costs no second index.
    pub(crate) fn holds(&self, name: &LockName) -> bool {
        lock(&self.due).holds.values().any(|hold| hold.claim().name() == name)
    }

    fn take_due(&self, now: Moment) -> Option<Arc<Hold>> {
        let mut due = lock(&self.due);
        let slot = *due.holds.first_key_value()?.0;
        if slot.0 > now {
            return None;
        }
        let hold = due.holds.remove(&slot)?;
        hold.set_slot(None);
        Some(hold)
    }

    /// How long the ticker may sleep; `None` if nothing is held.
    fn sleep(&self, now: Moment) -> Option<Duration> {
        let mut due = lock(&self.due);
        let next = due.holds.first_key_value().map(|(slot, _)| slot.0.min(now.plus(TICK)));
        due.wakes = next;
        next.map(|when| when.since(now))
    }

    fn is_closed(&self) -> bool {
        lock(&self.due).closed
    }

    /// The deployment falls short of what was required: whatever is held is lost.
    pub(crate) fn degrade(&self) {
        let held = std::mem::take(&mut lock(&self.due).holds);
        for hold in held.into_values() {
            hold.set_slot(None);
            hold.validity.lose(LossReason::Degraded);
            hold.retire();
        }
    }

    /// Nobody will look any more: whatever is still held counts as lost.
    pub(crate) fn close(&self) {
        let left = {
            let mut due = lock(&self.due);
            due.closed = true;
            std::mem::take(&mut due.holds)
        };
        self.earlier.notify_one();
        for hold in left.into_values() {
            hold.set_slot(None);
            hold.orphan();
        }
    }
}

/// Closes the schedule when the ticker ends, be it by a panic or with its runtime.
struct ClosesSchedule(Arc<Schedule>);

impl Drop for ClosesSchedule {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Looks at every hold when it is due, until the schedule is closed.
pub(crate) fn tick(schedule: Arc<Schedule>, clock: Clock, watch: Arc<Watch>) -> impl Future<Output = ()> + Send {
    // Made here and not in the future, which a runtime may drop before it is ever polled.
    let closing = ClosesSchedule(schedule);
    async move { ticking(&closing.0, &clock, &watch).await }
}

async fn ticking(schedule: &Schedule, clock: &Clock, watch: &Watch) {
    while !schedule.is_closed() {
        look(watch, schedule);
        while let Some(hold) = schedule.take_due(clock.now()) {
            match hold.look() {
                Some(next) => schedule.put(&hold, next),
                None => hold.retire(),
            }
        }
        let (before, timers) = (clock.now(), tokio::time::Instant::now());
        match schedule.sleep(before) {
            Some(pause) => {
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = schedule.earlier.notified() => {}
                }
            }
            None => schedule.earlier.notified().await,
        }
        if clock.now().since(before) > timers.elapsed().saturating_add(JUMP) {
            schedule.jumped.notify_waiters();
        }
    }
}
