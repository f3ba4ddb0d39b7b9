//! Questions about all that came before, answered without looking at each of them.

/// Of items sorted by time: the largest value among those before a time, and whose it is.
#[derive(Debug)]
pub(super) struct Before<T> {
    times: Vec<u64>,
    largest: Vec<(u64, T)>,
}

impl<T: Copy> Before<T> {
    /// From (time, value, whose) in any order.
    pub(super) fn of(items: impl IntoIterator<Item = (u64, u64, T)>) -> Self {
        let mut items: Vec<_> = items.into_iter().collect();
        items.sort_by_key(|(time, ..)| *time);
        let mut times = Vec::with_capacity(items.len());
        let mut largest: Vec<(u64, T)> = Vec::with_capacity(items.len());
        for (time, value, whose) in items {
            let best = match largest.last() {
                Some(best) if best.0 >= value => *best,
                _ => (value, whose),
            };
            times.push(time);
            largest.push(best);
        }
        Self { times, largest }
    }

    /// The largest among those strictly before `time`.
    pub(super) fn before(&self, time: u64) -> Option<(u64, T)> {
        let count = self.times.partition_point(|t| *t < time);
        self.largest.get(count.checked_sub(1)?).copied()
    }

    /// The largest among those at `time` or before.
    pub(super) fn until(&self, time: u64) -> Option<(u64, T)> {
        let count = self.times.partition_point(|t| *t <= time);
        self.largest.get(count.checked_sub(1)?).copied()
    }
}

/// The largest value among keys below a key, while items are added: a Fenwick tree of maxima.
#[derive(Debug)]
pub(super) struct Below<T> {
    keys: Vec<u64>,
    tree: Vec<Option<(u64, T)>>,
}

impl<T: Copy> Below<T> {
    /// For items with these keys.
    pub(super) fn with_keys(mut keys: Vec<u64>) -> Self {
        keys.sort_unstable();
        keys.dedup();
        let tree = vec![None; keys.len() + 1];
        Self { keys, tree }
    }

    pub(super) fn add(&mut self, key: u64, value: u64, whose: T) {
        let mut at = self.keys.partition_point(|k| *k < key) + 1;
        while let Some(best) = self.tree.get_mut(at) {
            if best.is_none_or(|(largest, _)| largest < value) {
                *best = Some((value, whose));
            }
            at += at & at.wrapping_neg();
        }
    }

    /// The largest value among the items added with a key strictly below `key`.
    pub(super) fn below(&self, key: u64) -> Option<(u64, T)> {
        let mut at = self.keys.partition_point(|k| *k < key);
        let mut best: Option<(u64, T)> = None;
        while at > 0 {
            if let Some(Some(found)) = self.tree.get(at)
                && best.is_none_or(|(largest, _)| largest < found.0)
            {
                best = Some(*found);
            }
            at -= at & at.wrapping_neg();
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_answer_as_a_scan_does() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..2_000 {
            let items: Vec<_> = (0..random.u64(0..12)).map(|i| (random.u64(0..8), random.u64(0..8), i)).collect();
            let sorted = Before::of(items.clone());
            let mut tree = Below::with_keys(items.iter().map(|item| item.0).collect());
            for (key, value, whose) in &items {
                tree.add(*key, *value, *whose);
            }
            for asked in 0..10 {
                let scan = |holds: &dyn Fn(u64) -> bool| items.iter().filter(|i| holds(i.0)).map(|i| i.1).max();
                assert_eq!(sorted.before(asked).map(|found| found.0), scan(&|time| time < asked));
                assert_eq!(sorted.until(asked).map(|found| found.0), scan(&|time| time <= asked));
                assert_eq!(tree.below(asked).map(|found| found.0), scan(&|key| key < asked));
            }
        }
    }
}
