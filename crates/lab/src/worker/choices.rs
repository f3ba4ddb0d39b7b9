//! What a worker chooses for one hold, which the seed alone decides.

use super::Terms;
use fastrand::Rng;
use std::time::Duration;

/// All of it is drawn before the acquire, so that no answer changes what is drawn next.
#[derive(Debug)]
pub(super) struct Choices {
    lock: u32,
    pub(super) wait: Duration,
    pub(super) cancelled_after: Option<Duration>,
    /// How long it is held beyond the updates.
    pub(super) kept: Duration,
    pub(super) dropped: bool,
    /// How long is rested after it.
    pub(super) rest: Duration,
    /// For the updates under it.
    pub(super) random: Rng,
}

impl Choices {
    pub(super) fn of(terms: &Terms, hold: u32) -> Self {
        let (work, ttl) = (&terms.work, terms.ttl);
        let mut random = Rng::with_seed(spread(spread(terms.seed) ^ u64::from(terms.number) << 32 ^ u64::from(hold)));
        let lock = random.u32(0..work.locks.max(1));
        let mut of_hundred = |count: u8| random.u8(0..100) < count;
        let (cancelled, hasty) = (of_hundred(work.cancelled), of_hundred(work.hasty));
        let (long, dropped) = (of_hundred(work.long), of_hundred(work.dropped));
        let patience = Duration::from_micros(random.u64(0..200_000));
        let haste = Duration::from_millis(random.u64(1..100));
        let (least, most) = work.hold;
        let short = Duration::from_millis(random.u64(least..=most));
        let watched = ttl * 2 + ttl / 10 * random.u32(0..10);
        let rest = Duration::from_millis(random.u64(0..=work.rest));
        Self {
            lock,
            wait: if hasty { haste.min(work.wait) } else { work.wait },
            cancelled_after: cancelled.then_some(patience),
            kept: if long { watched } else { short },
            dropped,
            rest,
            random: Rng::with_seed(random.u64(..)),
        }
    }

    pub(super) fn lock(&self) -> String {
        format!("lock/{}", self.lock)
    }

    /// Each lock guards what is its own, where there are several.
    pub(super) fn suffix(&self, locks: u32) -> String {
        if locks > 1 { format!("#{}", self.lock) } else { String::new() }
    }
}

/// Neighbouring numbers become far ones.
fn spread(number: u64) -> u64 {
    let mixed = (number ^ number >> 30).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ mixed >> 27
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::Work;

    fn terms(seed: u64, number: u32) -> Terms {
        let work = Work { locks: 50, ..Work::default() };
        let (url, attest, history) = (String::new(), Vec::new(), std::path::PathBuf::new());
        Terms { url, attest, number, history, store: 0, ttl: Duration::from_secs(1), work, seed }
    }

    #[test]
    fn a_seed_makes_the_same_choices_again_and_another_makes_others() {
        let all = |seed, number| (1..50).map(move |hold| format!("{:?}", Choices::of(&terms(seed, number), hold)));
        let all = |seed, number| all(seed, number).collect::<Vec<_>>();
        assert_eq!(all(7, 1), all(7, 1));
        assert_ne!(all(7, 1), all(8, 1));
        assert_ne!(all(7, 1), all(7, 2), "workers differ");
    }
}
