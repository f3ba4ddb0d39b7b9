//! E1: must-hold intervals are disjoint.

use crate::history::holds::LockHistory;
use crate::history::{Finding, Verdict};

pub(super) fn judge(lock: &LockHistory, verdict: &mut Verdict) {
    let mut spans: Vec<_> =
        lock.holds.iter().filter_map(|h| h.must_hold().map(|(from, to)| (from, to, h.id))).collect();
    spans.sort_unstable();
    verdict.asked += spans.len() as u64;
    let mut latest: Option<(u64, (u32, u32))> = None;
    for (from, to, id) in spans {
        if let Some((end, other)) = latest
            && from < end
        {
            verdict.found((from, end.min(to)), || Finding {
                subject: lock.lock.to_string(),
                message: format!("two must hold it at once for {} us", end.min(to).saturating_sub(from) / 1_000),
                holds: vec![other, id],
                span: (from, end.min(to)),
            });
        }
        if latest.is_none_or(|(end, _)| end < to) {
            latest = Some((to, id));
        }
    }
}
