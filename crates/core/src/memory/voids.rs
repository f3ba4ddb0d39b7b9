//! Ids that are dead: no late or duplicated request may take the lock with one.

use crate::by_id::Ids;
use crate::{ClaimId, Moment};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// How many ids that ended in order are remembered, against duplicates.
const RECENT: usize = 4096;
/// The least time that an id is remembered whose requests may still be on their way.
const LEAST: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Voids {
    buried: Ids,
    until: BTreeSet<(Moment, ClaimId)>,
    retired: Ids,
    order: VecDeque<ClaimId>,
}

impl Voids {
    pub(super) fn contains(&self, id: ClaimId) -> bool {
        self.buried.contains(&id) || self.retired.contains(&id)
    }

    /// The id is dead, and a request of it may still arrive within `ttl` or a minute.
    pub(super) fn bury(&mut self, id: ClaimId, ttl: Duration, now: Moment) {
        while let Some((until, old)) = self.until.first().copied()
            && until <= now
        {
            self.until.pop_first();
            self.buried.remove(&old);
        }
        if self.buried.insert(id) {
            self.until.insert((now.plus(ttl.max(LEAST)), id));
        }
    }

    /// The id is dead, and every request of it that its client knows of was answered.
    pub(super) fn retire(&mut self, id: ClaimId) {
        if self.retired.insert(id) {
            self.order.push_back(id);
            if self.order.len() > RECENT
                && let Some(old) = self.order.pop_front()
            {
                self.retired.remove(&old);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buried_are_forgotten_by_time_and_the_retired_by_number() {
        let mut voids = Voids::default();
        let id = |n: usize| ClaimId::from_bytes(u128::try_from(n).unwrap().to_be_bytes());
        let at = |secs| Moment::from_nanos(0).plus(Duration::from_secs(secs));
        voids.bury(id(0), Duration::from_secs(1), at(0));
        (1..=RECENT + 1).for_each(|n| voids.retire(id(n)));
        assert!(voids.contains(id(0)) && !voids.contains(id(1)) && voids.contains(id(2)));
        voids.bury(id(9), Duration::from_secs(1), at(61));
        assert!(!voids.contains(id(0)));
    }
}
