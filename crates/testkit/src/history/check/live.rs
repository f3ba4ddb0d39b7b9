//! L1: a waiter is served in time where nothing is broken and nobody holds.

use super::Limits;
use super::sweep::Before;
use crate::history::holds::LockHistory;
use crate::history::{Event, Finding, Verdict, What};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// The spans of a history in which no fault was under way.
pub(super) fn quiet_spans(events: &[Event]) -> Vec<(u64, u64)> {
    let (mut spans, mut open) = (Vec::new(), HashSet::new());
    let mut quiet_since = events.first().map(|event| event.at);
    for event in events {
        match &event.what {
            What::Fault { fault, .. } => {
                open.insert(*fault);
                if let Some(since) = quiet_since.take() {
                    spans.push((since, event.at));
                }
            }
            What::Healed { fault } if open.remove(fault) && open.is_empty() => quiet_since = Some(event.at),
            _ => {}
        }
    }
    if let (Some(since), Some(last)) = (quiet_since, events.last()) {
        spans.push((since, last.at));
    }
    spans
}

/// Those of them that begin with the end of a fault; all, if there was no fault.
pub(super) fn healed_spans(events: &[Event]) -> Vec<(u64, u64)> {
    let quiet = quiet_spans(events);
    let unhurt = !events.iter().any(|event| matches!(event.what, What::Fault { .. }));
    let first = events.first().map(|event| event.at);
    quiet.into_iter().filter(|(from, _)| unhurt || Some(*from) != first).collect()
}

/// Whether the whole of `from..=to` lies in one quiet span.
pub(super) fn within_quiet(quiet: &[(u64, u64)], from: u64, to: u64) -> bool {
    let count = quiet.partition_point(|(start, _)| *start <= from);
    count.checked_sub(1).and_then(|at| quiet.get(at)).is_some_and(|(_, end)| to <= *end)
}

pub(super) fn judge(
    lock: &LockHistory,
    quiet: &[(u64, u64)],
    healed: &[(u64, u64)],
    limits: Limits,
    verdict: &mut Verdict,
) {
    let limit = nanos(limits.served_within);
    let waits = waits(lock, nanos(limits.asks_again_within));
    verdict.asked += chances(&waits, healed, limit);
    // Those who waited longer than the limit at all, by when they asked.
    let patient = waits.iter().filter(|(called, until, _)| until.saturating_sub(*called) > limit).copied();
    let patient = Before::of(patient);
    for (from, to) in empty_spans(lock, quiet) {
        let Some(latest_start) = to.checked_sub(limit) else { continue };
        if let Some((until, id)) = patient.before(latest_start)
            && until.min(to) > from.saturating_add(limit)
        {
            verdict.found((from, to), || Finding {
                subject: lock.lock.to_string(),
                message: format!(
                    "nobody held it for {} ms, and one who waited was not served",
                    (to - from) / 1_000_000
                ),
                holds: vec![id],
                span: (from, to),
            });
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

type Wait = (u64, u64, (u32, u32));

/// From when each acquire was called to its answer; those that a worker made one
/// soon after the other, and that came to nothing, are one.
fn waits(lock: &LockHistory, again: u64) -> Vec<Wait> {
    let mut waits: Vec<Wait> = Vec::new();
    // The worker's last wait, if it came to nothing.
    let mut open: HashMap<u32, usize> = HashMap::new();
    for hold in &lock.holds {
        let (worker, until) = (hold.id.0, hold.answered.unwrap_or(hold.last));
        let before = open.remove(&worker).and_then(|at| Some((at, waits.get_mut(at)?)));
        let at = match before {
            Some((at, wait)) if hold.called.saturating_sub(wait.1) < again => {
                wait.1 = until;
                at
            }
            _ => {
                waits.push((hold.called, until, hold.id));
                waits.len() - 1
            }
        };
        if hold.token.is_none() {
            open.insert(worker, at);
        }
    }
    waits
}

/// In how many spans somebody asked early enough that, had nobody been served in it, it would show.
fn chances(waits: &[Wait], healed: &[(u64, u64)], limit: u64) -> u64 {
    let asked = Before::of(waits.iter().map(|(called, until, id)| (*called, *until, *id)));
    let is_chance = |(from, to): &&(u64, u64)| {
        let latest = to.checked_sub(limit.saturating_add(1)).filter(|latest| latest >= from);
        latest.and_then(|latest| asked.until(latest)).is_some_and(|(until, _)| until >= *from)
    };
    healed.iter().filter(is_chance).count() as u64
}

/// The spans in which nothing was broken and nobody was known to hold, nor was granted anything.
fn empty_spans(lock: &LockHistory, quiet: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut held: Vec<_> =
        lock.holds.iter().filter_map(|h| h.granted().map(|(at, _)| (at, h.over().max(at)))).collect();
    held.sort_unstable();
    let mut held = held.into_iter().peekable();
    let mut empty = Vec::new();
    let mut busy_until = 0;
    for (start, end) in quiet {
        let mut from = (*start).max(busy_until);
        while let Some((granted, over)) = held.next_if(|(granted, _)| granted <= end) {
            if granted > from {
                empty.push((from, granted));
            }
            busy_until = busy_until.max(over);
            from = from.max(over);
        }
        if *end > from {
            empty.push((from, *end));
        }
    }
    empty
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::check::check;
    use crate::history::{Property, Verdict};

    const MS: u64 = 1_000_000;

    fn event(at: u64, worker: u32, hold: u32, what: What) -> Event {
        Event { at: at * MS, worker, hold, what }
    }

    /// A fault from 100 ms to 200 ms, and a rest until 1 s in which a worker asks for 40 ms again and again.
    fn asks_in_vain(from: u64, to: u64) -> Vec<Event> {
        let fault = [
            event(0, 0, 0, What::Forced { lock: "other".into() }),
            event(100, 0, 0, What::Fault { fault: 1, kind: "fault".into() }),
            event(200, 0, 0, What::Healed { fault: 1 }),
        ];
        let asks = (from..to).step_by(50).enumerate().flat_map(|(hold, at)| {
            let hold = u32::try_from(hold).unwrap();
            let lock = "lock".into();
            let why = "in vain".into();
            [event(at, 1, hold, What::Acquire { lock }), event(at + 40, 1, hold, What::NotGranted { why })]
        });
        let end = event(1_000, 0, 0, What::Forced { lock: "other".into() });
        let mut events: Vec<_> = fault.into_iter().chain(asks).chain([end]).collect();
        events.sort_by_key(|event| event.at);
        events
    }

    fn live(events: &[Event], again: u64) -> Verdict {
        let limits = Limits::new(Duration::from_millis(500)).with_asks_again_within(Duration::from_millis(again));
        check(events, limits).of(Property::L1).unwrap().clone()
    }

    #[test]
    fn who_asks_again_and_again_has_been_waiting() {
        let events = asks_in_vain(150, 1_000);
        assert!(live(&events, 50).is_broken());
        assert!(!live(&events, 0).is_broken(), "each ask is for itself unless the limits say so");
    }

    #[test]
    fn a_chance_is_a_rest_in_which_it_would_have_shown() {
        assert_eq!(live(&asks_in_vain(150, 1_000), 50).asked, 1);
        assert_eq!(live(&asks_in_vain(0, 150), 50).asked, 0, "nobody asked after the fault");
        assert_eq!(live(&asks_in_vain(650, 1_000), 50).asked, 0, "nobody asked in time");
    }
}
