//! Lock services that are wrong, each found out by the promise that it breaks.

#![allow(clippy::cast_possible_truncation, reason = "the numbers are small")]
#![allow(clippy::indexing_slicing, clippy::print_stdout, reason = "no library code")]

mod sim;

use fencelock_testkit::history::Property::{self, *};
use fencelock_testkit::history::Verdicts;
use fencelock_testkit::history::check::{Limits, check};
use sim::{Flaw, run};
use std::time::Duration;

const SEEDS: u64 = 300;

fn judged(flaw: Flaw, seed: u64) -> Verdicts {
    // A killed or paused holder keeps the others waiting for a ttl, a lost message for less.
    check(&run(flaw, seed), Limits::new(Duration::from_millis(1_000)))
}

#[test]
fn nothing_is_said_against_what_is_right() {
    let mut asked = [0; Property::ALL.len()];
    for seed in 0..SEEDS {
        let said = judged(Flaw::None, seed);
        let broken: Vec<_> = said.broken().filter(|verdict| verdict.property != Fifo).collect();
        assert!(broken.is_empty(), "seed {seed}: {broken:#?}");
        said.all.iter().zip(&mut asked).for_each(|(verdict, asked)| *asked += verdict.asked);
    }
    // Pauses made stale writers and losses in plenty, else little would be shown.
    for (property, asked) in Property::ALL.into_iter().zip(asked) {
        println!("{property:<4} asked {asked} times");
        assert!(asked > 50, "{property} was asked {asked} times");
    }
}

#[test]
fn every_mutant_is_caught() {
    for (flaw, by) in [
        (Flaw::ReleaseWithoutOwnerCheck, &[E1, R1][..]),
        (Flaw::DeadlineFromReceipt, &[E1]),
        (Flaw::ClockStopsInSuspend, &[E1]),
        (Flaw::TokenIsMaximumOfNodes, &[K1]),
        (Flaw::TokenTakenOnFailedAcquire, &[K2]),
        (Flaw::RenewalRevives, &[E2]),
        (Flaw::NoReReadAfterTheWait, &[E1]),
        (Flaw::ValidityFromPings, &[E1]),
        (Flaw::SequenceNumberAsToken, &[K1, K2]),
        (Flaw::RowDeletedOnRelease, &[K1]),
        (Flaw::UndoForgotten, &[L1]),
        (Flaw::GateChecksTheWriteOnly, &[G2]),
        (Flaw::GateForgetsTheNewest, &[G1, G2]),
    ] {
        for property in by {
            let found = (0..SEEDS).find(|seed| judged(flaw, *seed).breaks(*property));
            let seed = found.unwrap_or_else(|| panic!("{property} does not catch {flaw:?} in {SEEDS} seeds"));
            let said = judged(flaw, seed);
            let finding = said.of(*property).and_then(|verdict| verdict.findings.first());
            println!("{flaw:?}: {property}, seed {seed}: {}", finding.map_or("", |found| &found.message));
        }
    }
}
