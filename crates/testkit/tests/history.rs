//! The checker against definitions that look at every pair and every order.

#![allow(clippy::cast_possible_truncation, clippy::panic, reason = "no library code; the numbers are small")]

mod histories;

use fencelock_testkit::history::check::{Limits, check};
use fencelock_testkit::history::{Property, Verdicts};
use histories::{Small, naive};
use std::time::Duration;

/// How many random histories each comparison looks at.
const ROUNDS: u64 = 100_000;

fn judged(small: &Small) -> Verdicts {
    let limits = Limits::new(Duration::from_nanos(naive::SERVED_WITHIN)).with_queued_apart(Duration::from_nanos(1));
    check(&small.events(), limits)
}

/// A fenced-mutex history is linearizable if and only if E1, E2, K1 and K2 hold.
#[test]
fn linearizable_is_what_the_four_say() {
    let (mut yes, mut no) = (0, 0);
    for seed in 0..ROUNDS {
        let small = Small::random(seed);
        let said = judged(&small);
        let four = [Property::E1, Property::E2, Property::K1, Property::K2];
        let right = !four.into_iter().any(|property| said.breaks(property));
        assert_eq!(right, naive::is_linearizable(&small), "seed {seed}: {small:#?}\n{said}");
        *(if right { &mut yes } else { &mut no }) += 1;
    }
    // Else the comparison would say little.
    assert!(yes > ROUNDS / 20 && no > ROUNDS / 20, "{yes} right, {no} wrong");
}

#[test]
fn each_property_is_what_its_pairs_say() {
    let mut broken = [0_u64; Property::ALL.len()];
    for seed in 0..ROUNDS {
        let small = Small::random_with_all(seed);
        let said = judged(&small);
        for (property, count) in Property::ALL.into_iter().zip(&mut broken) {
            let right = naive::breaks(&small, property);
            assert_eq!(said.breaks(property), right, "seed {seed}, {property}: {small:#?}\n{said}");
            *count += u64::from(right);
        }
    }
    for (property, count) in Property::ALL.into_iter().zip(broken) {
        assert!(count > ROUNDS / 1_000 && count < ROUNDS * 19 / 20, "{property} is broken in {count} of {ROUNDS}");
    }
}
