//! Claims over reports that are made up.

use super::claims;
use crate::experiment::{Asked, Experiment};
use crate::fault::Fault;
use crate::promise::promised;
use crate::report::Report;
use crate::verdict::{Came, Expected, Row};
use fencelock::{Assumption, Guarantees, Level, Liveness, Rule, Scope};
use fencelock_lab::Failure;
use fencelock_testkit::history::Property::{self, E1};
use std::sync::Arc;

fn found(level: Level) -> Arc<Guarantees> {
    let found = Guarantees::of("mine", "one server", Scope::Network, Liveness::Lease);
    let found = found.with_assumption(Assumption::ServerClock);
    Arc::new(found.with_rule(Rule::new("mine.proof", level).proved("seen")))
}

/// All that is promised holds, and what `broken` says is broken.
fn report(level: Level, fault: Fault, broken: &[Asked]) -> Report {
    let experiment = Experiment::new("mine", "here", fault, || Err(Failure::new("made up")));
    let found = found(level);
    let promised = promised(&found, &[fault]);
    let all = Property::ALL.map(Asked::Of).into_iter().chain([Asked::StaysUp]);
    let row = |property| {
        let is_broken = broken.contains(&property);
        Row {
            engine: "mine",
            deployment: "here",
            level: level.to_string(),
            server: "one server".to_owned(),
            fault: experiment.fault_id(),
            variant: "",
            property,
            expected: if promised.contains(&property) { Expected::Holds } else { Expected::Nothing },
            verdict: if is_broken { Came::Broken } else { Came::Holds },
            hits: 5,
            operations: 9,
            asked: 9,
            broken: u64::from(is_broken),
            seed: 1,
            ran: 1.0,
            faulted: 0.5,
            witness: is_broken.then(|| "seen".to_owned()),
            shown: None,
        }
    };
    let rows = all.map(row).collect();
    Report { experiment, found, rows, events: Vec::new() }
}

/// Each kind of fault that `fenced` withstands on one server, and nobody served while that is away.
fn whole() -> Vec<Report> {
    let of = |fault| report(Level::Fenced, fault, &[]);
    let faults =
        [Fault::HolderKilled, Fault::HolderCut, Fault::HolderStoppedLong, Fault::ServerRestarted, Fault::ClockForward];
    let away = report(Level::Fenced, Fault::ServersStopped, &[Asked::StaysUp]);
    faults.into_iter().map(of).chain([away]).collect()
}

#[test]
fn all_that_holds_and_a_witness_above_confirm_a_level() {
    let claims = claims(&whole());
    assert_eq!(claims.len(), 1);
    assert!(claims[0].confirmed, "{claims:?}");
    assert!(claims[0].above.contains("servers-stopped breaks UP"), "{}", claims[0].above);
}

#[test]
fn a_fault_that_was_not_tried_leaves_it_open() {
    for at in 0..whole().len() {
        let mut reports = whole();
        reports.remove(at);
        let claim = claims(&reports).remove(0);
        assert!(!claim.confirmed && !claim.lacks.is_empty(), "{claim:?}");
    }
}

#[test]
fn a_promise_that_is_broken_refutes_it_and_one_that_was_not_made_does_not() {
    let mut reports = whole();
    reports.push(report(Level::Fenced, Fault::FailedOver, &[Asked::Of(E1)]));
    assert!(claims(&reports)[0].confirmed, "fenced promises nothing under a fail-over");
    reports.push(report(Level::Fenced, Fault::HolderCut, &[Asked::Of(E1)]));
    let claim = claims(&reports).remove(0);
    assert!(!claim.confirmed && claim.lacks[0].contains("E1 is broken"), "{claim:?}");
}

#[test]
fn the_level_above_needs_a_witness() {
    let mut reports = whole();
    reports.pop();
    reports.push(report(Level::Fenced, Fault::ServersStopped, &[]));
    let claim = claims(&reports).remove(0);
    assert_eq!(claim.lacks, ["no witness against replicated"]);
    // Two holders after a fail-over are a witness too.
    reports.push(report(Level::Fenced, Fault::FailedOver, &[Asked::Of(E1)]));
    assert!(claims(&reports)[0].confirmed);
}
