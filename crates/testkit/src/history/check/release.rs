//! R1: only the owner releases.

use super::live::within_quiet;
use super::sweep::Before;
use crate::history::holds::LockHistory;
use crate::history::{Finding, Verdict};

/// Broken where a release that was called after the next grant said that it freed
/// the lock, and where a hold was revoked though nothing was broken and nobody forced it.
pub(super) fn judge(lock: &LockHistory, quiet: &[(u64, u64)], verdict: &mut Verdict) {
    // For every hold that was granted: how late it was asked for, by the time of its grant.
    let grants = Before::of(lock.holds.iter().filter_map(|h| h.granted().map(|(at, _)| (at, h.called, h.id))));
    let mut forced = lock.forced.clone();
    forced.sort_unstable();
    for hold in &lock.holds {
        let Some((granted, _)) = hold.granted() else { continue };
        verdict.asked += u64::from(hold.release.is_some() || hold.doubted.is_some());
        if let (Some(called), Some(freed)) = (hold.release, hold.freed)
            && let Some((asked, next)) = grants.before(called)
            && asked > granted
        {
            verdict.found((called, freed), || Finding {
                subject: lock.lock.to_string(),
                message: "freed by one who had lost it to the next".to_owned(),
                holds: vec![hold.id, next],
                span: (called, freed),
            });
        }
        if let Some(told) = hold.revoked
            && within_quiet(quiet, granted, told)
        {
            let from = forced.partition_point(|at| *at < granted);
            if forced.get(from).is_none_or(|at| *at > told) {
                verdict.found((granted, told), || Finding {
                    subject: lock.lock.to_string(),
                    message: "revoked, and neither forced nor broken".to_owned(),
                    holds: vec![hold.id],
                    span: (granted, told),
                });
            }
        }
    }
}
