//! K1 and K2: tokens are unique, and grow in real time.

use super::sweep::Before;
use crate::history::holds::LockHistory;
use crate::history::{Finding, Verdict};

pub(super) fn judge_unique(lock: &LockHistory, verdict: &mut Verdict) {
    let mut granted: Vec<_> =
        lock.holds.iter().filter_map(|h| h.granted().map(|(at, token)| (token, at, h.id))).collect();
    granted.sort_unstable();
    verdict.asked += granted.len() as u64;
    for pair in granted.windows(2) {
        let [(token, first, a), (same, second, b)] = pair else { continue };
        if token == same {
            verdict.found((*first, *second), || Finding {
                subject: lock.lock.to_string(),
                message: format!("token {token} was given twice"),
                holds: vec![*a, *b],
                span: (*first, *second),
            });
        }
    }
}

/// A hold's token is larger than that of every hold which was granted before it
/// was asked for; and, if its holder believed in it, of every one granted before it was.
pub(super) fn judge_growing(lock: &LockHistory, verdict: &mut Verdict) {
    let granted = || lock.holds.iter().filter_map(|h| h.granted().map(|(at, token)| (at, token, h)));
    let earlier = Before::of(granted().map(|(at, token, h)| (at, token, (h.id, at))));
    for (at, token, hold) in granted() {
        verdict.asked += 1;
        let asked = if hold.must_hold().is_some() { at } else { hold.called };
        if let Some((larger, (id, before))) = earlier.before(asked)
            && larger > token
        {
            verdict.found((before, at), || Finding {
                subject: lock.lock.to_string(),
                message: format!("token {token} came after {larger}"),
                holds: vec![id, hold.id],
                span: (before, at),
            });
        }
    }
}
