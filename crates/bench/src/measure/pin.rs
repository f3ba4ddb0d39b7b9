//! One processor for the client, the server and all that either starts.
//!
//! On several, what is measured at low load is how fast an idle processor wakes
//! up: that pulls all ratios towards 1 and varies twofold between runs.

use crate::failure::Result;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Keeps this thread on the last processor that it may use. Call it before there
/// are others: threads and processes inherit it.
pub(crate) fn pin() -> Result<usize> {
    let allowed = sched_getaffinity(None)?;
    let last = (0..CpuSet::MAX_CPU).rev().find(|cpu| allowed.is_set(*cpu)).ok_or("no processor may be used")?;
    let mut one = CpuSet::new();
    one.set(last);
    sched_setaffinity(None, &one)?;
    Ok(last)
}
