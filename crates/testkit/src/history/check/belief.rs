//! E2: loss is final, and nobody believes after the deadline or after the next grant.

use super::sweep::{Before, Below};
use crate::history::holds::{Hold, LockHistory};
use crate::history::{Finding, Verdict};

pub(super) fn judge(lock: &LockHistory, verdict: &mut Verdict) {
    let finding = |message: String, holds, span| Finding { subject: lock.lock.to_string(), message, holds, span };
    for hold in &lock.holds {
        verdict.asked += u64::from(hold.believed.is_some() || hold.doubted.is_some());
        if let (Some(at), known) = (hold.revived, hold.doubted.unwrap_or_default()) {
            verdict
                .found((known, at), || finding("held again after it was lost".to_owned(), vec![hold.id], (known, at)));
        }
        if let Some(at) = hold.overran {
            verdict.found((at, at), || finding("believed after its deadline".to_owned(), vec![hold.id], (at, at)));
        }
    }
    for (believer, end, next, granted) in outlived(lock) {
        let message = format!("believed {} us after the next was granted", end.saturating_sub(granted) / 1_000);
        verdict.found((granted, end), || finding(message, vec![believer, next], (granted, end)));
    }
}

type Outlived = ((u32, u32), u64, (u32, u32), u64);

/// Holds that were granted while one from before them was believed in afterwards.
///
/// One is before another if it was granted before the other was asked for, or,
/// where the two overlap, if it was granted no later and has the smaller token.
fn outlived(lock: &LockHistory) -> Vec<Outlived> {
    let mut granted: Vec<(u64, u64, &Hold)> =
        lock.holds.iter().filter_map(|hold| hold.granted().map(|(at, token)| (at, token, hold))).collect();
    granted.sort_by_key(|(at, ..)| *at);
    let ends = |(at, _, hold): &(u64, u64, &Hold)| hold.must_hold().map(|(_, end)| (*at, end, hold.id));
    let earlier = Before::of(granted.iter().filter_map(ends));
    let mut smaller = Below::with_keys(granted.iter().map(|(_, token, _)| *token).collect());
    let mut found = Vec::new();
    for group in granted.chunk_by(|a, b| a.0 == b.0) {
        for entry in group {
            if let Some((_, end, id)) = ends(entry) {
                smaller.add(entry.1, end, id);
            }
        }
        for (at, token, hold) in group {
            let (by_time, by_token) = (earlier.before(hold.called), smaller.below(*token));
            if let Some((end, id)) = [by_time, by_token].into_iter().flatten().find(|(end, _)| end > at) {
                found.push((id, end, hold.id, *at));
            }
        }
    }
    found
}
