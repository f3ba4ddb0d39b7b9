//! Undo that a node owes: it did not answer, and may have a part of a lock that nobody holds.
//!
//! A majority that has undone is enough for the lock. But a part that stays on the
//! rest for as long as its ttl takes a vote away from everyone, so it is asked for
//! again until the node answers, or the part must have run out.

use crate::scripts::FREE_DEAD;
use crate::set::{Set, lock};
use std::collections::BTreeMap;
use std::sync::{Mutex, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

/// The most that one node may owe; what comes on top is left to run out.
const MOST: usize = 4_096;
/// What lies between two tries at a node that does not answer: from the first to the second, doubling.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// One undo that makes the id dead: the keys and arguments of `free.lua`.
#[derive(Clone)]
pub(crate) struct Debt {
    pub(crate) keys: [String; 2],
    pub(crate) args: [String; 2],
    /// By then the part has run out by itself.
    pub(crate) until: Instant,
}

#[derive(Default)]
pub(crate) struct Debts {
    open: Mutex<Open>,
    /// Rung when the node may answer again.
    pub(crate) sooner: Notify,
}

#[derive(Default)]
struct Open {
    /// By claim id.
    debts: BTreeMap<String, Debt>,
    /// Before then none has run out.
    soonest: Option<Instant>,
    collecting: bool,
}

impl Open {
    fn clear(&mut self, now: Instant) {
        if self.soonest.is_some_and(|soonest| soonest <= now) {
            self.debts.retain(|_, debt| debt.until > now);
            self.soonest = self.debts.values().map(|debt| debt.until).min();
        }
    }
}

impl Debts {
    pub(crate) fn len(&self) -> usize {
        lock(&self.open).debts.len()
    }

    /// Adds one; true if nobody collects yet.
    fn add(&self, debt: Debt) -> bool {
        let [id, _] = &debt.args;
        let mut open = lock(&self.open);
        if open.debts.len() >= MOST {
            open.clear(Instant::now());
        }
        if open.debts.len() >= MOST && !open.debts.contains_key(id) {
            return false;
        }
        open.soonest = Some(open.soonest.map_or(debt.until, |soonest| soonest.min(debt.until)));
        open.debts.insert(id.clone(), debt);
        !std::mem::replace(&mut open.collecting, true)
    }

    /// One that may still matter; none ends the collecting.
    fn next(&self) -> Option<(String, Debt)> {
        let mut open = lock(&self.open);
        open.clear(Instant::now());
        let next = open.debts.first_key_value().map(|(id, debt)| (id.clone(), debt.clone()));
        open.collecting = next.is_some();
        next
    }

    fn paid(&self, id: &str) {
        lock(&self.open).debts.remove(id);
    }
}

impl Set {
    /// The node at `at` did not answer an undo: it is asked again from now on.
    pub(crate) fn owes(&self, at: usize, debt: Debt) {
        // Where a runtime has ended there is nobody left to pay.
        let Ok(home) = Handle::try_current() else { return };
        if self.members.get(at).is_some_and(|member| member.debts.add(debt)) {
            home.spawn(collect(Weak::clone(&self.itself), at));
        }
    }
}

/// The task: ends when the node owes nothing any more, or the set is gone.
async fn collect(set: Weak<Set>, at: usize) {
    let mut pause = PAUSES.0;
    loop {
        let member = {
            let Some(set) = set.upgrade() else { return };
            let Some(member) = set.members.get(at).cloned() else { return };
            let Some((id, debt)) = member.debts.next() else { return };
            match member.node.run_together(FREE_DEAD, &debt.keys, &debt.args, set.config.request_timeout).await {
                Ok(_) => {
                    member.debts.paid(&id);
                    pause = PAUSES.0;
                    continue;
                }
                // It never will.
                Err(failure) if failure.refused => {
                    member.debts.paid(&id);
                    continue;
                }
                Err(_) => member,
            }
        };
        let _ = timeout(pause / 2 + pause.mul_f64(fastrand::f64() / 2.0), member.debts.sooner.notified()).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_node_owes_each_undo_once_and_only_while_it_matters() {
        let debts = Debts::default();
        let debt = |id: &str, secs| Debt {
            keys: Default::default(),
            args: [id.to_owned(), String::new()],
            until: Instant::now() + Duration::from_secs(secs),
        };
        assert!(debts.add(debt("a", 1)), "the first begins the collecting");
        assert!(!debts.add(debt("a", 2)) && !debts.add(debt("b", 5)));
        assert_eq!(debts.len(), 2);
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(debts.next().map(|(id, _)| id).as_deref(), Some("b"));
        debts.paid("b");
        assert!(debts.next().is_none() && debts.add(debt("c", 1)), "it ended, and begins anew");
        for more in 0..MOST + 10 {
            debts.add(debt(&more.to_string(), 9));
        }
        assert_eq!(debts.len(), MOST);
    }
}
