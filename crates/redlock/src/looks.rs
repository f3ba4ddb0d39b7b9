//! Looking at nodes that have come up, perhaps as others than before.

use crate::meta::Found;
use crate::probe::Facts;
use crate::set::{Set, lock};
use fencelock_core::{Guarantees, Result};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// What lies between two looks at a node that does not answer: from the first to the second, doubling.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// How often a node that is known is asked again, when it has come up and does not answer.
const TRIES: u32 = 5;

/// A connection to the node was opened.
pub(crate) fn came_up(set: &Weak<Set>, at: usize) {
    let Some(strong) = set.upgrade() else { return };
    let Some(member) = strong.members.get(at) else { return };
    member.debts.sooner.notify_one();
    // Before that a look is under way already: that of whoever connects, or of an operator.
    if strong.record().is_some() {
        look(set, at);
    }
}

/// Sees to it that the node is looked at from now on, until it has answered.
pub(crate) fn look(set: &Weak<Set>, at: usize) {
    let Some(strong) = set.upgrade() else { return };
    let Some(member) = strong.members.get(at) else { return };
    let mut looks = lock(&member.looks);
    if looks.under_way {
        looks.again = true;
    } else {
        (looks.under_way, looks.again) = (true, false);
        tokio::spawn(looking(Weak::clone(set), at));
    }
}

async fn looking(set: Weak<Set>, at: usize) {
    let (mut pause, mut failed) = (PAUSES.0, 0);
    loop {
        {
            let Some(set) = set.upgrade() else { return };
            let Some(member) = set.members.get(at) else { return };
            let answered = match Facts::of(&member.node, set.keys.record(), set.patience()).await {
                Ok(facts) => {
                    set.judge(at, facts);
                    true
                }
                Err(_) => {
                    failed += 1;
                    // What is known of it still counts, and when it comes up it is looked at again.
                    member.is_known() && failed >= TRIES
                }
            };
            let mut looks = lock(&member.looks);
            if answered && !std::mem::take(&mut looks.again) {
                looks.under_way = false;
                return;
            }
            if answered {
                (pause, failed) = (PAUSES.0, 0);
                continue;
            }
        }
        tokio::time::sleep(pause / 2 + pause.mul_f64(fastrand::f64() / 2.0)).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

impl Set {
    /// Takes in what a node says: whether it votes, and what is guaranteed now.
    fn judge(&self, at: usize, facts: Facts) {
        let _one_by_one = lock(&self.judging);
        let Some(member) = self.members.get(at) else { return };
        let barred = self.why_barred(at, &facts);
        member.learn(facts, barred);
        self.conclude_again();
    }

    fn why_barred(&self, at: usize, facts: &Facts) -> Option<String> {
        let others = self.members.iter().enumerate().filter(|(other, _)| *other != at);
        let twin = others
            .filter(|(_, other)| facts.run_id().is_some() && other.run_id().as_deref() == facts.run_id())
            .map(|(_, other)| other.node.address())
            .min();
        match (twin, facts.replica_of(), &facts.record) {
            (Some(twin), ..) => Some(format!("it is the same server as {twin}")),
            (_, Some(master), _) => Some(format!("it is a replica of {master}")),
            (_, _, Found::Foreign(found)) => Some(format!("its keys have another layout: `{found}`")),
            (_, _, Found::Record(found)) if self.record().is_some_and(|record| record.set != found.set) => {
                Some("it belongs to another set".to_owned())
            }
            _ => None,
        }
    }

    /// Looks at all nodes now.
    ///
    /// # Errors
    /// `Unavailable` if no majority answered.
    pub(crate) async fn look_at_all(&self) -> Result<Arc<Guarantees>> {
        let found = self.probe().await;
        let answered = found.iter().filter(|facts| facts.is_ok()).count();
        if answered < self.majority() {
            return Err(self.too_few(answered, "probe"));
        }
        for (at, facts) in found.into_iter().enumerate() {
            if let Ok(facts) = facts {
                self.judge(at, facts);
            }
        }
        Ok(self.guarantees())
    }
}
