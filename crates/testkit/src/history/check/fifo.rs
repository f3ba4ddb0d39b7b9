//! FIFO: waiters are served in the order in which they came.

use super::Limits;
use super::sweep::Before;
use crate::history::holds::LockHistory;
use crate::history::{Finding, Verdict};

/// Broken where one who surely had a place before another's was asked for, and
/// came to hold the lock, did so only after the other.
pub(super) fn judge(lock: &LockHistory, limits: Limits, verdict: &mut Verdict) {
    let apart = u64::try_from(limits.queued_apart.as_nanos()).unwrap_or(u64::MAX);
    let held = || lock.holds.iter().filter_map(|h| h.must_hold().map(|(at, _)| (h, at)));
    let came = Before::of(held().map(|(h, at)| (h.called.saturating_add(apart), at, h.id)));
    for (hold, granted) in held() {
        verdict.asked += 1;
        if let Some((later, id)) = came.until(hold.called)
            && later > granted
        {
            verdict.found((hold.called, later), || Finding {
                subject: lock.lock.to_string(),
                message: "served before one who came earlier".to_owned(),
                holds: vec![id, hold.id],
                span: (hold.called, later),
            });
        }
    }
}
