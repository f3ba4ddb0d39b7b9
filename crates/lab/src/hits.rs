//! How many faults met a hold.

use crate::experiment::{Experiment, Victim};
use crate::fault::Fault;
use fencelock_testkit::history::{Event, What};
use std::collections::HashMap;
use std::sync::Arc;

/// How many faults were under way, from when they began to when they were over,
/// while one was holding (or waiting, where that is who is hit) whom they could hit.
pub(crate) fn hits(experiment: &Experiment, events: &[Event]) -> u32 {
    let spans = match experiment.victim {
        Victim::Holder => holds(events),
        Victim::Waiter => waits(events),
    };
    let at_workers: Vec<_> = experiment.faults().into_iter().filter(|fault| fault.is_at_a_holder()).collect();
    let met = |kind: &str, fault: &Span| {
        let at_worker = at_workers.iter().any(|at| is_of(*at, kind));
        // Who was killed under a lock, or waiting for it, never came to its end.
        let killed = is_of(Fault::HolderKilled, kind);
        // What one who is stopped is granted comes when it goes on.
        let stopped = [Fault::HolderStoppedShort, Fault::HolderStoppedLong].iter().any(|stop| is_of(*stop, kind));
        let was_there = |span: &Span| span.from <= fault.from;
        let met = |span: &Span| match (killed, stopped) {
            (true, _) => span.open && was_there(span),
            (_, true) => was_there(span) && span.overlaps(fault),
            _ => span.overlaps(fault),
        };
        spans.iter().any(|span| met(span) && (!at_worker || fault.worker == span.worker))
    };
    faults(events).iter().map(|(kind, fault)| u32::from(met(kind, fault))).sum()
}

/// Whether that is what a history calls the fault, with the worker's number behind it.
fn is_of(fault: Fault, kind: &str) -> bool {
    kind.rsplit_once(' ').is_some_and(|(id, _)| id == fault.id())
}

/// A hold, a wait, or a fault at a worker.
#[derive(Debug)]
struct Span {
    worker: u32,
    from: u64,
    to: u64,
    /// Nobody wrote that it is over.
    open: bool,
}

impl Span {
    fn overlaps(&self, other: &Self) -> bool {
        self.from <= other.to && other.from <= self.to
    }
}

/// From the grant to the release or the loss, or to when its worker was killed.
fn holds(events: &[Event]) -> Vec<Span> {
    spans(events, |what| match what {
        What::Granted { .. } => Some(true),
        What::Release | What::Lost { .. } | What::Doubted { .. } => Some(false),
        _ => None,
    })
}

/// From the call to the answer.
fn waits(events: &[Event]) -> Vec<Span> {
    spans(events, |what| match what {
        What::Acquire { .. } => Some(true),
        What::Granted { .. } | What::NotGranted { .. } => Some(false),
        _ => None,
    })
}

/// What `begins` says true to begins a span, and false ends it; all else belongs to it.
fn spans(events: &[Event], begins: impl Fn(&What) -> Option<bool>) -> Vec<Span> {
    let (mut open, mut over): (HashMap<_, Span>, Vec<_>) = (HashMap::new(), Vec::new());
    for Event { at, worker, hold, what } in events {
        let id = (*worker, *hold);
        match begins(what) {
            Some(true) => {
                open.insert(id, Span { worker: *worker, from: *at, to: *at, open: true });
            }
            Some(false) => over.extend(open.remove(&id).map(|span| Span { to: *at, open: false, ..span })),
            None => {
                if let Some(span) = open.get_mut(&id) {
                    span.to = *at;
                }
            }
        }
    }
    // Its worker wrote nothing more of it: it was killed, or the history was over.
    let killed: HashMap<_, _> = faults(events)
        .into_iter()
        .filter(|(kind, _)| is_of(Fault::HolderKilled, kind))
        .map(|(_, fault)| (fault.worker, fault.from))
        .collect();
    let end = events.last().map_or(0, |last| last.at);
    over.extend(open.into_values().map(|span| {
        let to = killed.get(&span.worker).copied().unwrap_or(end).max(span.to);
        Span { to, ..span }
    }));
    over
}

/// What each fault was, and from its beginning to its end, or to that of the history.
fn faults(events: &[Event]) -> Vec<(Arc<str>, Span)> {
    let end = events.last().map_or(0, |last| last.at);
    let mut faults: HashMap<u32, (Arc<str>, Span)> = HashMap::new();
    for event in events {
        match &event.what {
            What::Fault { fault, kind } => {
                let worker = kind.rsplit_once(' ').and_then(|(_, number)| number.parse().ok()).unwrap_or_default();
                let span = Span { worker, from: event.at, to: end, open: false };
                faults.entry(*fault).or_insert_with(|| (Arc::clone(kind), span));
            }
            What::Healed { fault } => {
                if let Some((_, span)) = faults.get_mut(fault) {
                    span.to = event.at;
                }
            }
            _ => {}
        }
    }
    faults.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deployments::experiments;

    fn at(at: u64, worker: u32, what: What) -> Event {
        Event { at, worker, hold: u32::from(worker > 0), what }
    }

    fn history(fault: Fault, granted: u64, released: u64) -> Vec<Event> {
        let kind = |worker| format!("{fault} {worker}").into();
        let mut events = vec![
            at(granted, 7, What::Granted { token: 1 }),
            at(released, 7, What::Release),
            at(10, 0, What::Fault { fault: 1, kind: kind(7) }),
            at(20, 0, What::Healed { fault: 1 }),
            at(30, 0, What::Fault { fault: 2, kind: kind(8) }),
            at(40, 0, What::Healed { fault: 2 }),
        ];
        events.sort_by_key(|event| event.at);
        events
    }

    #[test]
    fn a_fault_hits_a_hold_that_overlaps_it_and_that_it_can_hit() {
        let any = |fault| experiments().into_iter().find(|experiment| experiment.fault == fault).unwrap();
        let met = |fault, granted, released| hits(&any(fault), &history(fault, granted, released));
        let (servers, holder) = (Fault::ServersStopped, Fault::HolderCut);
        assert_eq!(met(servers, 1, 9), 0, "it was over before the first began");
        assert_eq!(met(servers, 15, 16), 1, "granted while it was under way");
        assert_eq!(met(servers, 1, 31), 2);
        assert_eq!(met(holder, 1, 31), 1, "the second was at another worker");
        assert_eq!(met(holder, 21, 31), 0);
    }

    #[test]
    fn what_one_who_was_stopped_is_granted_when_it_goes_on_was_not_hit() {
        let any = |fault| experiments().into_iter().find(|experiment| experiment.fault == fault).unwrap();
        for fault in [Fault::HolderStoppedShort, Fault::HolderStoppedLong] {
            let met = |granted, released| hits(&any(fault), &history(fault, granted, released));
            assert_eq!((met(1, 9), met(1, 11), met(1, 25), met(20, 25)), (0, 1, 1, 0));
        }
    }

    #[test]
    fn where_one_who_waits_is_hit_it_has_to_wait() {
        let holder = experiments().into_iter().find(|experiment| experiment.fault == Fault::HolderCut).unwrap();
        let waiter = holder.clone().at_a_waiter();
        let asks = |asked| {
            let acquire = at(asked, 7, What::Acquire { lock: "lock".into() });
            let mut events: Vec<_> = history(Fault::HolderCut, 30, 31).into_iter().chain([acquire]).collect();
            events.sort_by_key(|event| event.at);
            events
        };
        assert_eq!((hits(&holder, &asks(9)), hits(&waiter, &asks(9))), (0, 1));
        assert_eq!(hits(&waiter, &asks(29)), 0);
    }

    #[test]
    fn a_kill_hits_a_hold_that_never_ended() {
        let any = experiments().into_iter().find(|experiment| experiment.fault == Fault::HolderKilled).unwrap();
        let kind = format!("{} 7", Fault::HolderKilled);
        let mut events = vec![
            at(1, 7, What::Granted { token: 1 }),
            at(2, 7, What::Believed { asked: 2, deadline: 9 }),
            at(5, 0, What::Fault { fault: 1, kind: kind.into() }),
            at(6, 0, What::Healed { fault: 1 }),
        ];
        assert_eq!(hits(&any, &events), 1);
        events.insert(2, at(3, 7, What::Release));
        assert_eq!(hits(&any, &events), 0);
    }

    #[test]
    fn who_was_killed_held_until_then() {
        let any = |fault| experiments().into_iter().find(|experiment| experiment.fault == fault).unwrap();
        let history = |kind: &str| {
            vec![
                at(1, 7, What::Granted { token: 1 }),
                at(2, 7, What::Believed { asked: 2, deadline: 9 }),
                at(5, 0, What::Fault { fault: 1, kind: kind.into() }),
                at(6, 0, What::Healed { fault: 1 }),
            ]
        };
        let mut later = history("holder-killed 7");
        later.push(at(8, 0, What::Fault { fault: 2, kind: "servers-stopped 1".into() }));
        assert_eq!(hits(&any(Fault::HolderKilled), &history("holder-killed 7")), 1);
        assert_eq!(hits(&any(Fault::HolderKilled), &history("holder-killed 8")), 0);
        assert_eq!(hits(&any(Fault::ServersStopped), &later), 1, "the second met nobody");
    }
}
