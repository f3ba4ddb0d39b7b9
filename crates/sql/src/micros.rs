//! Microseconds, as the tables count time.

use std::time::Duration;

/// A duration of so many microseconds; zero if they are negative.
pub(crate) fn micros(count: i64) -> Duration {
    Duration::from_micros(u64::try_from(count).unwrap_or(0))
}

/// Whole microseconds, rounded up, so that nothing is kept for less than was asked.
pub(crate) fn in_micros(d: Duration) -> i64 {
    i64::try_from(d.as_nanos().div_ceil(1000)).unwrap_or(i64::MAX / 4).min(i64::MAX / 4)
}
