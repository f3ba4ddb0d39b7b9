//! What a history says about an experiment, with the counts that give it weight.

mod up;

use crate::experiment::{Asked, Experiment};
use crate::hits::hits;
use crate::promise::{is_in_order, promised};
use crate::runner::Ran;
use fencelock::{Capability, Level};
use fencelock_testkit::history::check::{Limits, check};
use fencelock_testkit::history::{Event, Property, Verdict, What};
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// What came out for one promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Came {
    Holds,
    Broken,
    /// The fault did not hit often enough, nothing was asked, or nobody else ever held.
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

/// A place in a history that breaks a promise.
#[derive(Clone, Debug)]
pub(crate) struct Witness {
    pub(crate) message: String,
    pub(crate) span: (u64, u64),
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
    pub(crate) fault: String,
    pub(crate) variant: &'static str,
    #[serde(serialize_with = "by_id")]
    pub(crate) property: Asked,
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
    /// How long the workers worked, and for how long of that a fault was under way, in seconds.
    pub(crate) ran: f64,
    pub(crate) faulted: f64,
    /// The shortest witness, in words.
    pub(crate) witness: Option<String>,
    #[serde(skip)]
    pub(crate) shown: Option<Witness>,
}

fn by_id<S: serde::Serializer>(asked: &Asked, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(asked.id())
}

impl Row {
    pub(crate) fn is_as_expected(&self) -> bool {
        match self.expected {
            Expected::Holds => self.verdict == Came::Holds,
            Expected::Broken => self.verdict == Came::Broken,
            Expected::Nothing => true,
        }
    }

    /// Worth a line in a table.
    pub(crate) fn is_of_interest(&self) -> bool {
        self.asked > 0 || self.expected != Expected::Nothing
    }
}

/// What was counted for one promise.
struct Judged {
    asked: u64,
    broken: u64,
    shown: Option<Witness>,
}

impl From<&Verdict> for Judged {
    fn from(verdict: &Verdict) -> Self {
        let shown = verdict
            .findings
            .first()
            .map(|found| Witness { message: format!("{}: {}", found.subject, found.message), span: found.span });
        Self { asked: verdict.asked, broken: verdict.broken, shown }
    }
}

/// Judges a history, promise by promise.
pub(crate) fn judge(experiment: &Experiment, seed: u64, ran: &Ran) -> Vec<Row> {
    let events = ran.events.as_slice();
    // A worker rests for some tens of milliseconds when an acquire came to nothing.
    let limits = Limits::new(experiment.served_within).with_asks_again_within(Duration::from_millis(500));
    // Between the call and the server there is a process that others keep from running.
    let limits = limits.with_queued_apart(Duration::from_millis(300));
    let mut judged: Vec<(Asked, Judged)> = Vec::new();
    let in_order = ran.found.has(Capability::Fifo) && experiment.faults().into_iter().all(is_in_order);
    for verdict in &check(&without(events, &["open", "write only"]), limits).all {
        if verdict.property != Property::Fifo || in_order {
            judged.push((Asked::Of(verdict.property), verdict.into()));
        }
    }
    for (asked, others) in
        [(Asked::OpenUpdates, ["gated", "list", "write only"]), (Asked::WriteOnlyUpdates, ["gated", "list", "open"])]
    {
        let said = check(&without(events, &others), limits);
        judged.extend(said.of(Property::G2).map(|verdict| (asked, verdict.into())));
    }
    judged.push((Asked::StaysUp, up::judge(experiment, events)));
    rows(experiment, seed, ran, judged)
}

fn rows(experiment: &Experiment, seed: u64, ran: &Ran, judged: Vec<(Asked, Judged)>) -> Vec<Row> {
    let events = ran.events.as_slice();
    let promised = if experiment.wrong { Vec::new() } else { promised(&ran.found, &experiment.faults()) };
    let hits = hits(experiment, events);
    let is_shared = is_shared(experiment, events);
    let operations = events.iter().filter(|event| matches!(event.what, What::Granted { .. })).count() as u64;
    let attested = ran.attested.iter().map(|rule| format!(", {rule} attested"));
    let server: String = [ran.found.deployment().to_owned()].into_iter().chain(attested).collect();
    let row = |(asked, judged): (Asked, Judged)| {
        // What the deployment says of itself is asked of it wherever there was a chance to break it.
        let promised = promised.contains(&asked) && judged.asked > 0 || asked == Asked::Of(Property::Fifo);
        // Before a waiter has to be served nobody may be, and that is only told.
        let in_time =
            experiment.faults().into_iter().all(|fault| experiment.lasting(fault) >= experiment.served_within);
        let promised = promised && (asked != Asked::StaysUp || in_time);
        let expected = if promised || experiment.holds.contains(&asked) {
            Expected::Holds
        } else if experiment.breaks.contains(&asked) {
            Expected::Broken
        } else {
            Expected::Nothing
        };
        let verdict = match judged {
            Judged { broken: 1.., .. } => Came::Broken,
            Judged { asked: 1.., .. } if hits >= experiment.least_hits && is_shared => Came::Holds,
            _ => Came::Inconclusive,
        };
        Row {
            engine: experiment.engine,
            deployment: experiment.deployment,
            level: ran.found.level().map_or("none", Level::as_str).to_owned(),
            server: server.clone(),
            fault: experiment.fault_id(),
            variant: experiment.variant,
            property: asked,
            expected,
            verdict,
            hits,
            operations,
            asked: judged.asked,
            broken: judged.broken,
            seed,
            ran: ran.lasted.as_secs_f64(),
            faulted: faulted(events).as_secs_f64(),
            witness: judged.shown.as_ref().map(|shown| shown.message.clone()),
            shown: judged.shown,
        }
    };
    judged.into_iter().map(row).collect()
}

/// Whether more than one worker came to hold: what one does alone says nothing of a lock.
fn is_shared(experiment: &Experiment, events: &[Event]) -> bool {
    let mut granted = events.iter().filter(|event| matches!(event.what, What::Granted { .. }));
    let first = granted.next().map(|event| event.worker);
    experiment.workers < 2 || granted.any(|event| Some(event.worker) != first)
}

/// For how long a fault was under way.
fn faulted(events: &[Event]) -> Duration {
    let (mut since, mut all) = (None, 0);
    for event in events {
        match event.what {
            What::Fault { .. } => since = since.or(Some(event.at)),
            What::Healed { .. } => all += since.take().map_or(0, |since| event.at.saturating_sub(since)),
            _ => {}
        }
    }
    Duration::from_nanos(all)
}

/// The history without what happened at these resources, of whichever lock.
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
        | What::FinalList { resource, .. } => {
            let kind = resource.split('#').next().unwrap_or_default();
            resources.contains(&kind)
        }
        _ => false,
    };
    events.iter().filter(|event| !at(&event.what)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deployments::experiments;

    #[test]
    fn what_one_worker_does_alone_says_nothing() {
        let experiment = experiments().into_iter().next().unwrap();
        let granted = |worker, token| Event { at: token, worker, hold: 1, what: What::Granted { token } };
        let asks = Event { at: 9, worker: 2, hold: 1, what: What::Acquire { lock: "lock".into() } };
        let alone = [granted(1, 1), granted(1, 2), asks];
        assert!(!is_shared(&experiment, &alone) && !is_shared(&experiment, &[]));
        assert!(is_shared(&experiment, &[granted(1, 1), granted(2, 2)]));
        assert!(is_shared(&experiment.with_workers(1), &alone));
    }
}
