//! The promises as they are defined, by looking at every pair and every order.

use super::{Acquire, Small};
use fencelock_testkit::history::{GateAnswer, Property};

/// In the time of events, which is twice that of ticks.
pub(crate) const SERVED_WITHIN: u64 = 8;

impl Acquire {
    fn granted(&self) -> Option<(u64, u64)> {
        Some((self.answered, self.token?))
    }

    fn must_hold(&self) -> Option<(u64, u64)> {
        let (start, _) = self.granted()?;
        let last = self.asked.iter().filter(|ask| ask.1).map(|ask| ask.0).max()?;
        let end = self.release.map_or(last, |(called, _)| last.min(called));
        Some((start, end.max(start)))
    }

    fn known_lost(&self) -> Option<u64> {
        let told = self.lost.map(|(at, _)| at);
        self.asked.iter().filter(|ask| !ask.1).map(|ask| ask.0).chain(told).min()
    }

    fn last_heard(&self) -> u64 {
        let asked = self.asked.iter().map(|ask| ask.0);
        let steps = self.steps.iter().flat_map(|step| [Some(step.called), step.answered.map(|a| a.0)]).flatten();
        let release =
            self.release.into_iter().flat_map(|(called, answer)| [Some(called), answer.map(|a| a.0)]).flatten();
        let told = self.lost.map(|(at, _)| at);
        asked.chain(steps).chain(release).chain(told).chain([self.answered]).max().unwrap_or_default()
    }

    fn over(&self) -> u64 {
        let ends = self.release.map(|(called, _)| called).into_iter().chain(self.known_lost());
        ends.min().unwrap_or_else(|| self.last_heard()).max(self.answered)
    }
}

/// Whether some order of the holds explains everything.
pub(crate) fn is_linearizable(small: &Small) -> bool {
    let mut granted: Vec<_> = small.acquires.iter().filter(|a| a.token.is_some()).collect();
    let count = granted.len();
    permutations(&mut granted, count, &mut |order| {
        let (mut free_from, mut last_token) = (0, 0);
        order.iter().all(|a| {
            let granted_at = a.called.max(free_from);
            let held_until = a.must_hold().map_or(granted_at, |(_, end)| end.max(granted_at));
            let token = a.token.unwrap_or_default();
            let fits = granted_at <= a.answered && token > last_token;
            (free_from, last_token) = (held_until, token);
            fits
        })
    })
}

fn permutations<'a>(items: &mut Vec<&'a Acquire>, left: usize, fits: &mut dyn FnMut(&[&'a Acquire]) -> bool) -> bool {
    if left <= 1 {
        return fits(items);
    }
    for at in 0..left {
        items.swap(at, left - 1);
        if permutations(items, left - 1, fits) {
            return true;
        }
        items.swap(at, left - 1);
    }
    false
}

pub(crate) fn breaks(small: &Small, property: Property) -> bool {
    match property {
        Property::E1 => pairs(small, |a, b| {
            let (Some(a), Some(b)) = (a.must_hold(), b.must_hold()) else { return false };
            a.0 < b.1 && b.0 < a.1
        }),
        Property::E2 => alone(small, believes_what_is_lost) || pairs(small, outlives_the_next),
        Property::K1 => pairs(small, |a, b| a.token.is_some() && a.token == b.token),
        Property::K2 => pairs(small, |a, b| {
            let (Some((at, token)), Some((before, larger))) = (a.granted(), b.granted()) else { return false };
            larger > token && (before < a.called || a.must_hold().is_some() && before < at)
        }),
        Property::G1 => small.acquires.iter().any(|a| small.acquires.iter().any(|b| accepted_though_stale(a, b))),
        Property::G2 => loses_updates(small),
        Property::R1 => pairs(small, frees_the_nexts) || alone(small, |a| revoked_for_no_reason(small, a)),
        Property::L1 => alone(small, |a| waits_in_vain(small, a)),
        Property::Fifo => {
            pairs(small, |a, b| a.called < b.called && a.must_hold().zip(b.must_hold()).is_some_and(|(a, b)| a.0 > b.0))
        }
        other => panic!("no definition of {other}"),
    }
}

fn alone(small: &Small, wrong: impl Fn(&Acquire) -> bool) -> bool {
    small.acquires.iter().any(wrong)
}

fn pairs(small: &Small, wrong: impl Fn(&Acquire, &Acquire) -> bool) -> bool {
    let all = || small.acquires.iter().enumerate();
    all().any(|(i, a)| all().any(|(j, b)| i != j && wrong(a, b)))
}

fn believes_what_is_lost(a: &Acquire) -> bool {
    let lost = a.known_lost().unwrap_or(u64::MAX);
    a.asked.iter().any(|(asked, held, deadline)| *held && (*asked > lost || asked > deadline))
}

fn outlives_the_next(a: &Acquire, b: &Acquire) -> bool {
    let (Some((_, end)), Some((at, token)), Some((next, larger))) = (a.must_hold(), a.granted(), b.granted()) else {
        return false;
    };
    end > next && (at < b.called || at <= next && token < larger)
}

fn accepted_though_stale(a: &Acquire, b: &Acquire) -> bool {
    let entered = b.steps.iter().filter(|step| step.value.is_none());
    let entered = entered.filter_map(|step| step.answered.filter(|answer| answer.1 == GateAnswer::Accepted));
    let done = a.steps.iter().filter(|step| step.answered.is_some_and(|answer| answer.1 == GateAnswer::Accepted));
    let done: Vec<_> = done.collect();
    entered.into_iter().any(|(at, _)| b.token > a.token && done.iter().any(|step| step.called > at))
}

fn loses_updates(small: &Small) -> bool {
    let writes = || small.acquires.iter().flat_map(|a| &a.steps).filter(|step| step.value.is_some());
    let of = |value: u64| writes().filter(move |step| step.value == Some(value));
    let accepted = |value| of(value).filter(|s| s.answered.is_some_and(|a| a.1 == GateAnswer::Accepted)).count();
    let unknown = |value| of(value).any(|s| s.answered.is_none_or(|a| a.1 == GateAnswer::Unknown));
    let twice = (0..10).any(|value| accepted(value) > 1);
    let last = small.count.unwrap_or_default();
    let over = small.count.is_some() && (0..10).any(|value| value > last && accepted(value) > 0);
    twice || over || (1..=last).any(|value| accepted(value) == 0 && !unknown(value))
}

fn frees_the_nexts(a: &Acquire, b: &Acquire) -> bool {
    let (Some((at, _)), Some((next, _)), Some((called, Some((_, true))))) = (a.granted(), b.granted(), a.release)
    else {
        return false;
    };
    b.called > at && next < called
}

fn revoked_for_no_reason(small: &Small, a: &Acquire) -> bool {
    let (Some((at, _)), Some((told, true))) = (a.granted(), a.lost) else { return false };
    let broken = small.faults.iter().any(|(from, to)| *from < told && to.is_none_or(|to| to >= at));
    !broken && !small.forced.iter().any(|forced| (at..=told).contains(forced))
}

/// Cuts out of the time it waited all in which something was broken or somebody held.
fn waits_in_vain(small: &Small, a: &Acquire) -> bool {
    let faults = small.faults.iter().map(|(from, to)| (from * 2 + 1, to.map_or(u64::MAX, |to| to * 2 + 1)));
    let held = small.acquires.iter().filter_map(|b| b.granted().map(|(at, _)| (at * 2, b.over() * 2)));
    let mut cut: Vec<_> = faults.chain(held).collect();
    cut.sort_unstable();
    let (mut from, until) = (a.called * 2, a.answered * 2);
    for (start, end) in cut {
        if start.min(until) > from.saturating_add(SERVED_WITHIN) {
            return true;
        }
        from = from.max(end);
    }
    until > from.saturating_add(SERVED_WITHIN)
}
