//! The models that are looked at, how far, and what is to be found.

use super::{ALONE, Budget, DEAD, FINAL, FREED, Flaw, Leases};
use crate::{assert_found, assert_sound, broken, large};
use std::collections::BTreeSet;

/// Three claims are what the longest of the flaws needs: one's release, late, and two that meet.
fn leases(flaw: Flaw) -> Leases {
    let budget = Budget { claims: 3, repeats: 0, renewals: 1, suspensions: 1 };
    Leases { flaw, expires: true, plain: false, budget }
}

/// What is kept alive by a session that lives for ever.
fn session(flaw: Flaw) -> Leases {
    let budget = Budget { claims: 4, repeats: 2, renewals: 0, suspensions: 0 };
    Leases { flaw, expires: false, plain: false, budget }
}

#[test]
fn leases_are_sound() {
    let ours = leases(Flaw::None);
    assert_sound("renewed once, suspended once", ours);
    let repeats = Budget { claims: 2, repeats: 1, renewals: 1, suspensions: 0 };
    assert_sound("asked again", Leases { budget: repeats, ..ours });
    if large() {
        let renewed = Budget { claims: 3, repeats: 1, renewals: 2, suspensions: 1 };
        assert_sound("asked again, renewed twice, suspended", Leases { budget: renewed, ..ours });
        let claims = Budget { claims: 4, repeats: 1, renewals: 2, suspensions: 0 };
        assert_sound("four claims", Leases { budget: claims, ..ours });
    }
}

#[test]
fn a_session_that_never_ends_is_sound() {
    assert_sound("no clock", session(Flaw::None));
}

#[test]
fn a_deadline_from_the_reply_is_found() {
    assert_found("deadline from the reply", ALONE, leases(Flaw::DeadlineFromReply));
}

#[test]
fn a_clock_that_stops_in_suspend_is_found() {
    assert_found("clock stops in suspend", ALONE, leases(Flaw::ClockStopsInSuspend));
}

#[test]
fn a_deadline_that_allows_for_no_drift_is_found() {
    assert_found("no allowance for drift", ALONE, leases(Flaw::NoDriftAllowance));
}

#[test]
fn a_renewal_that_revives_is_found() {
    assert_found("the client believes again", FINAL, leases(Flaw::RenewalRevives));
    assert_found("the server makes the lock anew", DEAD, leases(Flaw::RenewalCreates));
    assert_found("the server lets a renewal take over", ALONE, leases(Flaw::RenewalTakesOver));
}

#[test]
fn a_release_without_owner_check_is_found() {
    assert_found("release of another's", ALONE, leases(Flaw::ReleaseUnchecked));
}

#[test]
fn an_acquire_that_arrives_after_its_undo_is_found() {
    assert_found("granted after its undo", DEAD, leases(Flaw::IdsNotVoided));
    assert_found("granted after its undo, in a session", FREED, session(Flaw::IdsNotVoided));
}

#[test]
fn what_is_left_out_makes_no_difference() {
    let flaws = [
        Flaw::None,
        Flaw::DeadlineFromReply,
        Flaw::ClockStopsInSuspend,
        Flaw::NoDriftAllowance,
        Flaw::RenewalTakesOver,
        Flaw::RenewalCreates,
        Flaw::RenewalRevives,
        Flaw::ReleaseUnchecked,
        Flaw::IdsNotVoided,
    ];
    let suspended = Budget { claims: 2, repeats: 0, renewals: 0, suspensions: 1 };
    let renewed = Budget { claims: 2, repeats: 0, renewals: 1, suspensions: 0 };
    let repeated = Budget { claims: 1, repeats: 1, renewals: 1, suspensions: 0 };
    let mut ever = BTreeSet::new();
    for flaw in flaws {
        let wide = large() || matches!(flaw, Flaw::None | Flaw::ClockStopsInSuspend | Flaw::RenewalTakesOver);
        let narrow = [(repeated, true), (repeated, false), (renewed, false)];
        for (budget, expires) in [(suspended, true), (renewed, true)].into_iter().filter(|_| wide).chain(narrow) {
            let reduced = Leases { flaw, expires, plain: false, budget };
            let plain = broken(Leases { plain: true, ..reduced });
            assert_eq!(broken(reduced), plain, "{reduced:?}");
            ever.extend(plain);
        }
    }
    assert_eq!(ever, BTreeSet::from([ALONE, FINAL, DEAD, FREED]), "not enough was looked at");
}
