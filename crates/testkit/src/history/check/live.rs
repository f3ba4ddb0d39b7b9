//! L1: a waiter is served in time where nothing is broken and nobody holds.

use super::Limits;
use super::sweep::Before;
use crate::history::holds::LockHistory;
use crate::history::{Event, Finding, Verdict, What};
use std::collections::HashSet;

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

/// Whether the whole of `from..=to` lies in one quiet span.
pub(super) fn within_quiet(quiet: &[(u64, u64)], from: u64, to: u64) -> bool {
    let count = quiet.partition_point(|(start, _)| *start <= from);
    count.checked_sub(1).and_then(|at| quiet.get(at)).is_some_and(|(_, end)| to <= *end)
}

pub(super) fn judge(lock: &LockHistory, quiet: &[(u64, u64)], limits: Limits, verdict: &mut Verdict) {
    let limit = u64::try_from(limits.served_within.as_nanos()).unwrap_or(u64::MAX);
    // Those who waited longer than the limit at all, by when they asked.
    let patient = lock.holds.iter().filter_map(|h| {
        let until = h.answered.unwrap_or(h.last);
        (until.saturating_sub(h.called) > limit).then_some((h.called, until, h.id))
    });
    let patient = Before::of(patient);
    verdict.asked += lock.holds.iter().filter(|h| h.token.is_some()).count() as u64;
    for (from, to) in empty_spans(lock, quiet) {
        let Some(latest_start) = to.checked_sub(limit) else { continue };
        if let Some((until, id)) = patient.before(latest_start)
            && until.min(to) > from.saturating_add(limit)
        {
            verdict.found(|| Finding {
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
