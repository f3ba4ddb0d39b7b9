//! What this client knows of the counters: the largest number of each shard that it was told of, or has proposed.
//!
//! It is for speed alone. One that is too small is refused, one that is too large skips a few.

use crate::set::lock;
use fencelock_core::FencingToken;
use std::collections::HashMap;
use std::sync::Mutex;

/// From here on Lua's numbers would skip some.
pub(crate) const END: u64 = 1 << 53;

/// Each of the 65,536 shards at most once. Never forgotten, so that no number is proposed again.
#[derive(Debug, Default)]
pub(crate) struct Numbers(Mutex<HashMap<u32, u64>>);

impl Numbers {
    /// A node told this of its counter. The last number of all is not kept: the counter was tampered with, and may be mended.
    pub(crate) fn heard(&self, shard: u32, counter: u64) {
        if counter < END - 1 {
            let mut numbers = lock(&self.0);
            let known = numbers.entry(shard).or_default();
            *known = counter.max(*known);
        }
    }

    /// One to propose without asking first, if anything is known of the shard.
    pub(crate) fn guess(&self, shard: u32) -> Option<FencingToken> {
        let mut numbers = lock(&self.0);
        let known = numbers.get_mut(&shard)?;
        following(known, 0)
    }

    /// One that is larger than `heard`, and than all that is known.
    pub(crate) fn next(&self, shard: u32, heard: u64) -> Option<FencingToken> {
        following(lock(&self.0).entry(shard).or_default(), heard)
    }
}

fn following(known: &mut u64, heard: u64) -> Option<FencingToken> {
    let next = heard.max(*known).saturating_add(1);
    (next < END).then(|| {
        *known = next;
        FencingToken::new(next)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_comes_twice() {
        let numbers = Numbers::default();
        assert_eq!(numbers.guess(1), None, "nothing is known yet");
        numbers.heard(1, 7);
        numbers.heard(1, 5);
        let found = [numbers.guess(1), numbers.next(1, 3), numbers.next(1, 20), numbers.guess(1)];
        assert_eq!(found.map(|number| number.unwrap().get()), [8, 9, 21, 22]);
        assert_eq!((numbers.guess(2), numbers.next(2, 0)), (None, Some(FencingToken::new(1))));
    }

    #[test]
    fn what_was_tampered_with_is_not_kept() {
        let numbers = Numbers::default();
        numbers.heard(1, 4);
        numbers.heard(1, u64::MAX);
        numbers.heard(1, END - 1);
        assert_eq!(numbers.next(1, END - 1), None);
        assert_eq!(numbers.guess(1), Some(FencingToken::new(5)));
    }
}
