//! What must not be in the logs of a lock.

use super::read::{Ended, Hold, Logs, Stale, Time};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// What is wrong.
#[derive(Debug)]
pub(super) enum Finding<'l> {
    /// Two holds of one name at the same time.
    Overlap {
        first: &'l Hold,
        second: &'l Hold,
        from: Time,
        until: Time,
    },
    Stale(&'l Stale),
    /// The later hold's token is not larger.
    TokenOrder {
        earlier: &'l Hold,
        later: &'l Hold,
    },
}

impl Finding<'_> {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Overlap { second, .. } => &second.name,
            Self::Stale(stale) => &stale.name,
            Self::TokenOrder { later, .. } => &later.name,
        }
    }

    pub(super) fn at(&self) -> Time {
        match self {
            Self::Overlap { from, .. } => *from,
            Self::Stale(stale) => stale.at,
            Self::TokenOrder { later, .. } => later.granted,
        }
    }
}

/// Holds whose logs end without a release or a loss, each with the next that was granted while it could
/// still be believed. A killed process may have acted until then, or have given the lock back unheard:
/// the logs cannot tell, so that this is no finding.
pub(super) fn unclear(logs: &Logs) -> Vec<(&Hold, &Hold)> {
    let mut found = Vec::new();
    for holds in logs.by_name().values() {
        for first in holds.iter().filter(|hold| hold.ended == Ended::Unknown) {
            let after = holds.partition_point(|hold| hold.granted < first.end);
            let next = holds.iter().skip(after).find(|hold| hold.claim != first.claim);
            if let Some(second) = next.filter(|second| second.granted < first.until) {
                found.push((*first, *second));
            }
        }
    }
    found.sort_by_key(|(_, second)| second.granted);
    found
}

/// With how many that were held already an overlapping hold is told: every one is
/// named, but not every pair, of which there may be millions.
const PAIRS: usize = 8;

/// Everything that is wrong, by time. Overlaps of at most `skew` are none.
pub(super) fn judge(logs: &Logs, skew: Duration) -> Vec<Finding<'_>> {
    let skew = i64::try_from(skew.as_micros()).unwrap_or(i64::MAX);
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for stale in &logs.stale {
        // The same log given twice tells of it once.
        if seen.insert((&*stale.engine, &*stale.name, &*stale.claim, stale.at)) {
            found.push(Finding::Stale(stale));
        }
    }
    for holds in logs.by_name().values() {
        overlaps(holds, skew, &mut found);
        tokens(holds, skew, &mut found);
    }
    found.sort_by(|one, two| (one.at(), one.name()).cmp(&(two.at(), two.name())));
    found
}

fn overlaps<'l>(holds: &[&'l Hold], skew: Time, found: &mut Vec<Finding<'l>>) {
    let mut open: Vec<&Hold> = Vec::new();
    for second in holds {
        open.retain(|first| first.end.saturating_sub(second.granted) > skew);
        for first in open.iter().take(PAIRS) {
            let (from, until) = (second.granted, first.end.min(second.end));
            found.push(Finding::Overlap { first, second, from, until });
        }
        open.push(second);
    }
}

fn tokens<'l>(holds: &[&'l Hold], skew: Time, found: &mut Vec<Finding<'l>>) {
    let mut by_end = holds.to_vec();
    by_end.sort_by_key(|hold| hold.end);
    let mut ended = by_end.into_iter().peekable();
    // Of the holds that had ended, the one with the largest token.
    let mut newest: Option<&Hold> = None;
    let mut seen: HashMap<u64, &Hold> = HashMap::new();
    for later in holds {
        while let Some(hold) = ended.next_if(|hold| hold.end.saturating_add(skew) <= later.granted) {
            let is_newer = newest.is_none_or(|newest| newest.token < hold.token);
            // A hold that ended as it began may be this one itself.
            if is_newer && hold.claim != later.claim {
                newest = Some(hold);
            }
        }
        let repeated = seen.insert(later.token, later);
        let before = newest.filter(|newest| newest.token >= later.token && newest.claim != later.claim);
        if let Some(earlier) = before.or(repeated) {
            found.push(Finding::TokenOrder { earlier, later });
        }
    }
}
