//! What a history says about an experiment, with the counts that give it weight.

use crate::experiment::{Asked, Experiment};
use crate::runner::Ran;
use fencelock_testkit::history::check::{Limits, check};
use fencelock_testkit::history::{Event, Finding, Property, Verdict, What};
use serde::Serialize;
use std::collections::HashMap;
use std::fmt;

/// What came out for one promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Came {
    Holds,
    Broken,
    /// The fault did not hit often enough, or nothing was asked.
    Inconclusive,
}

/// What was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Expected {
    Holds,
    Broken,
    /// Not promised, and not shown to break: only told.
    Nothing,
}

macro_rules! told_as {
    ($($of:ty { $($case:ident => $text:literal),+ })+) => { $(
        impl fmt::Display for $of {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { $(Self::$case => $text),+ })
            }
        }
    )+ };
}

told_as! {
    Came { Holds => "holds", Broken => "broken", Inconclusive => "inconclusive" }
    Expected { Holds => "holds", Broken => "broken", Nothing => "-" }
}

/// One line of the report.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) engine: &'static str,
    pub(crate) deployment: &'static str,
    /// The level that the deployment gave.
    pub(crate) level: String,
    /// What it said it is, and what was attested.
    pub(crate) server: String,
    pub(crate) fault: &'static str,
    pub(crate) variant: &'static str,
    pub(crate) property: &'static str,
    pub(crate) expected: Expected,
    pub(crate) verdict: Came,
    /// How often the fault hit a hold.
    pub(crate) hits: u32,
    /// How many locks were granted.
    pub(crate) operations: u64,
    /// How many things could have broken it, and how many did.
    pub(crate) asked: u64,
    pub(crate) broken: u64,
    pub(crate) seed: u64,
    /// The shortest witness, in words.
    pub(crate) witness: Option<String>,
    #[serde(skip)]
    pub(crate) finding: Option<Finding>,
}

impl Row {
    pub(crate) fn is_as_expected(&self) -> bool {
        match self.expected {
            Expected::Holds => self.verdict == Came::Holds,
            Expected::Broken => self.verdict == Came::Broken,
            Expected::Nothing => true,
        }
    }
}

/// Judges a history, promise by promise.
pub(crate) fn judge(experiment: &Experiment, seed: u64, ran: &Ran) -> Vec<Row> {
    let events = ran.events.as_slice();
    let limits = Limits::new(experiment.served_within);
    let hits = hits(experiment, events);
    let operations = events.iter().filter(|event| matches!(event.what, What::Granted { .. })).count() as u64;
    let row = |asked: Asked, verdict: &Verdict| {
        let expected = if experiment.holds.contains(&asked) {
            Expected::Holds
        } else if experiment.breaks.contains(&asked) {
            Expected::Broken
        } else {
            Expected::Nothing
        };
        let came = match verdict {
            verdict if verdict.is_broken() => Came::Broken,
            verdict if verdict.asked > 0 && hits >= experiment.least_hits => Came::Holds,
            _ => Came::Inconclusive,
        };
        let finding = verdict.findings.first().cloned();
        Row {
            engine: experiment.engine,
            deployment: experiment.deployment,
            level: ran.level.clone(),
            server: ran.server.clone(),
            fault: experiment.fault.id(),
            variant: experiment.variant,
            property: asked.id(),
            expected,
            verdict: came,
            hits,
            operations,
            asked: verdict.asked,
            broken: verdict.broken,
            seed,
            witness: finding.as_ref().map(|found| format!("{}: {}", found.subject, found.message)),
            finding,
        }
    };
    let fifo = |property| property != Property::Fifo || experiment.holds.contains(&Asked::Of(Property::Fifo));
    let guarded = check(&without(events, &["open", "write only"]), limits);
    let mut rows: Vec<_> = guarded
        .all
        .iter()
        .filter(|verdict| fifo(verdict.property))
        .map(|verdict| row(Asked::Of(verdict.property), verdict))
        .collect();
    for (asked, others) in
        [(Asked::OpenUpdates, ["gated", "list", "write only"]), (Asked::WriteOnlyUpdates, ["gated", "list", "open"])]
    {
        let said = check(&without(events, &others), limits);
        rows.extend(said.of(Property::G2).map(|verdict| row(asked, verdict)));
    }
    rows
}

/// The history without what happened at these resources.
fn without(events: &[Event], resources: &[&str]) -> Vec<Event> {
    let at = |what: &What| match what {
        What::Enter { resource }
        | What::Read { resource }
        | What::Decided { resource }
        | What::Entered { resource, .. }
        | What::Write { resource, .. }
        | What::Wrote { resource, .. }
        | What::Append { resource, .. }
        | What::Appended { resource, .. }
        | What::FinalCount { resource, .. }
        | What::FinalList { resource, .. } => resources.contains(&&**resource),
        _ => false,
    };
    events.iter().filter(|event| !at(&event.what)).cloned().collect()
}

/// How many faults began while one was holding whom they could hit.
fn hits(experiment: &Experiment, events: &[Event]) -> u32 {
    let mut holding: HashMap<u32, u32> = HashMap::new();
    let mut hits = 0;
    for event in events {
        match &event.what {
            What::Granted { .. } => {
                holding.insert(event.worker, event.hold);
            }
            What::Release | What::Lost { .. } | What::Doubted { .. }
                if holding.get(&event.worker) == Some(&event.hold) =>
            {
                holding.remove(&event.worker);
            }
            What::Fault { kind, .. } => {
                let victim = kind.rsplit_once(' ').and_then(|(_, number)| number.parse::<u32>().ok());
                let at_holder = experiment.fault.is_at_a_holder();
                let hit =
                    if at_holder { victim.is_some_and(|w| holding.contains_key(&w)) } else { !holding.is_empty() };
                hits += u32::from(hit);
            }
            _ => {}
        }
    }
    hits
}
