//! The suite must catch engines that are wrong: each flaw by each case that is named for it.

#![allow(clippy::indexing_slicing, reason = "no library code")]

mod own;

use fencelock_testkit::{CASES, Suite, run_if_child};
use libtest_mimic::{Arguments, Failed, Trial};
use own::{Flaw, Own};
use std::io::Write;
use std::process::ExitCode;

/// Every case named for the flaw is run, so that a failure names all that missed it.
fn is_caught<const F: usize>(by: &[&str]) -> Result<(), Failed> {
    let suite = Suite::<Own<F>>::new();
    let mut missed = Vec::new();
    for name in by {
        let case = CASES.iter().find(|case| case.name() == *name).ok_or_else(|| format!("no case {name}"))?;
        match suite.run(case) {
            Ok(()) => missed.push(*name),
            Err(failure) => {
                // Printed, so that one can see that it failed for the right reason; in one write, since flaws are tried
                // beside one another.
                let line = format!("  {:?}: {name}: {failure}\n", Flaw::ALL[F]);
                let _ = std::io::stderr().write_all(line.as_bytes());
            }
        }
    }
    let missed = missed.join(", ");
    if missed.is_empty() { Ok(()) } else { Err(format!("{:?} is not caught by {missed}", Flaw::ALL[F]).into()) }
}

/// Each flaw, and the cases each of which must catch it.
macro_rules! mutants {
    ($($flaw:ident by $($case:literal)+,)+) => {
        fn trials() -> Vec<Trial> {
            vec![$({
                const F: usize = at(Flaw::$flaw);
                Trial::test(stringify!($flaw), || is_caught::<F>(&[$($case),+]))
            },)+]
        }
        const CAUGHT: &[Flaw] = &[$(Flaw::$flaw),+];
    };
}

const fn at(flaw: Flaw) -> usize {
    let mut at = 0;
    while Flaw::ALL[at] as usize != flaw as usize {
        at += 1;
    }
    at
}

mutants! {
    ReleasesAnybodys by "release_of_a_stolen_lease_never_frees_the_thiefs",
    AbandonsAnybodys by "abandon_never_frees_anothers_hold",
    RenewalRevives by "seized_is_told_and_stays_lost",
    RenewsAnybodys by "old_holder_leaves_the_thief_alone",
    CountsFromReceipt by "time_counts_from_before_the_request",
    AbandonDoesNothing by "several_cancelled_at_random_instants" "nested_work_cancelled_at_random_instants"
        "late_acquire_after_abandon_leaves_no_lock" "cancelled_at_every_await_point"
        "cancelled_at_random_instants" "abandoning_nothing_is_fine",
    AbandonDoesNotVoid by "late_acquire_after_abandon_leaves_no_lock",
    ReleaseDoesNotVoid by "late_acquire_after_release_leaves_no_lock",
    TokenStandsStill by "hands_over_and_the_token_grows" "stale_writer_is_refused",
    TokenFallsBack by "hands_over_and_the_token_grows",
    TokenAtFirstTry by "counter_under_contention",
    SameIdNewToken by "same_claim_twice_is_one_hold",
    SameIdNotRearmed by "same_claim_twice_is_one_hold",
    TryLeavesAPlace by "contended_try_leaves_no_trace",
    FoldsCase by "names_are_isolated",
    CutsNamesAtSlash by "names_are_isolated",
    CutsLongNames by "names_are_isolated",
    TrimsNames by "names_are_isolated",
    RenewsAfterRelease by "stays_free_after_release",
    NeverRenews by "outlives_its_ttl" "a_lease_that_passed_on_is_kept_and_its_loss_told" "waiter_outwaits_renewals" "excludes_across_processes",
    HidesRevocation by "seized_is_told_and_stays_lost" "loss_is_told_at_once_where_promised"
        "a_forced_release_stops_a_working_holder" "a_lease_that_passed_on_is_kept_and_its_loss_told",
    GrantsAlways by "excludes_across_clients" "cohorts_exclude_each_other" "counter_under_contention" "counter_across_processes",
    GrantsTheFirstTwo by "counter_under_contention",
    IgnoresLockDelay by "lock_delay_counts_after_failure_only" "killed_holder_frees_after_its_lock_delay",
    ExpiresLate by "fixed_lease_ends" "killed_holder_frees_within_its_ttl",
    ExpiresEarly by "fixed_lease_ends" "extension_takes_nothing_away",
    RenewalShortens by "extension_takes_nothing_away",
    ReleaseDoesNothing by "excludes_across_clients" "stays_free_after_release" "drop_frees" "close_drains",
    ReleaseSaysYes by "release_of_a_stolen_lease_never_frees_the_thiefs",
    ReleaseUnknownIsLost by "release_while_unreachable_is_made_good",
    ClaimsFifo by "every_waiter_is_served_in_order_where_promised" "inspect_shows_who_waits",
    ClaimsPushLoss by "loss_is_told_at_once_where_promised" "a_forced_release_stops_a_working_holder",
    HidesTheHolder by "inspect_shows_the_holder" "inspect_shows_who_waits",
    InventsWaiters by "inspect_shows_the_holder" "inspect_shows_who_waits",
    ShowsTheDead by "inspect_shows_the_holder",
    UnknownIsRenewed by "unreachable_is_lost_by_the_deadline" "hung_renewal_is_lost_by_the_deadline",
    UnknownIsLost by "short_interruption_is_jeopardy_and_no_loss",
    BlocksItsThread by "nothing_blocks_its_thread",
    ExtendDoesNothing by "fixed_lease_can_be_extended",
    NoLocalQueue by "waiters_of_one_client_are_served_in_order",
    WaitsInSilence by "wait_limit_is_one_deadline",
    KeepsToItself by "excludes_across_processes",
    ForcesAtOnce by "seized_stays_closed_for_its_lock_delay",
    ForcesAnybody by "a_forced_release_frees_the_hold_that_was_meant",
    ForcesInTwoSteps by "a_forced_release_frees_the_hold_that_was_meant",
    RenewsHalfAsOften by "a_forced_release_stops_a_working_holder",
    NeverReconnects by "unreachable_is_lost_by_the_deadline",
    ReservesNothing by "a_range_of_tokens_is_reserved_once" "cohorts_exclude_each_other",
    ReservesAnew by "a_range_of_tokens_is_reserved_once",
}

fn every_flaw_has_its_case() -> Result<(), Failed> {
    let missed: Vec<_> = Flaw::ALL[1..].iter().filter(|flaw| !CAUGHT.contains(flaw)).collect();
    if missed.is_empty() { Ok(()) } else { Err(format!("nobody catches {missed:?}").into()) }
}

fn main() -> ExitCode {
    if let Some(exit) = run_if_child::<Own<0>>() {
        return exit;
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(8);
    let mut trials = trials();
    trials.push(Trial::test("every_flaw_has_its_case", every_flaw_has_its_case));
    libtest_mimic::run(&arguments, trials).exit_code()
}
