//! Durations, counted in buckets that grow with them: at most an eighth off, in bounded memory.

use std::collections::BTreeMap;
use std::time::Duration;

/// Each power of two of microseconds is divided into so many buckets.
const PARTS: u32 = 8;

/// How often durations of which size were seen. At most 41 × 8 buckets, of which
/// only those that were hit take any memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Histogram {
    buckets: BTreeMap<u16, u64>,
    count: u64,
    max: Duration,
}

/// The bucket of a duration: those of up to 8 µs have one each.
fn bucket(duration: Duration) -> u16 {
    let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX).min(1 << 40);
    if micros < u64::from(PARTS) {
        return u16::try_from(micros).unwrap_or_default();
    }
    let power = micros.ilog2();
    let part = (micros >> (power - PARTS.ilog2())) - u64::from(PARTS);
    u16::try_from(u64::from((power - 2) * PARTS) + part).unwrap_or(u16::MAX)
}

/// The longest duration of a bucket.
fn longest(bucket: u16) -> Duration {
    let (bucket, parts) = (u64::from(bucket), u64::from(PARTS));
    if bucket < parts {
        return Duration::from_micros(bucket);
    }
    let (power, part) = (bucket / parts - 1, bucket % parts);
    Duration::from_micros(((parts + part + 1) << power) - 1)
}

impl Histogram {
    pub(crate) fn add(&mut self, duration: Duration) {
        *self.buckets.entry(bucket(duration)).or_default() += 1;
        self.count += 1;
        self.max = self.max.max(duration);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (bucket, count) in &other.buckets {
            *self.buckets.entry(*bucket).or_default() += count;
        }
        self.count += other.count;
        self.max = self.max.max(other.max);
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn max(&self) -> Duration {
        self.max
    }

    /// What so many of a hundred do not exceed, rounded up to its bucket's end; zero if there is none.
    pub(crate) fn percentile(&self, percent: u64) -> Duration {
        let rank = self.count.saturating_mul(percent).div_ceil(100).max(1);
        let mut seen = 0;
        for (bucket, count) in &self.buckets {
            seen += count;
            if seen >= rank {
                return longest(*bucket).min(self.max);
            }
        }
        self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_is_within_its_bucket_and_an_eighth_of_its_end() {
        let mut last = 0;
        for micros in (0..5_000).chain((13..40).flat_map(|power| [(1 << power) - 1, 1 << power, (1 << power) + 1])) {
            let duration = Duration::from_micros(micros);
            let (found, end) = (bucket(duration), longest(bucket(duration)));
            assert!(found >= last, "{micros} µs");
            assert!(end >= duration && end.as_micros() <= u128::from(micros + micros / 8 + 1), "{micros} µs: {end:?}");
            last = found;
        }
        assert!(bucket(Duration::MAX) < 41 * 8);
    }

    #[test]
    fn percentiles_of_a_thousand() {
        let mut histogram = Histogram::default();
        (1..=1_000).for_each(|ms| histogram.add(Duration::from_millis(ms)));
        let near = |percent, ms: u64| {
            let found = histogram.percentile(percent).as_millis();
            assert!(found >= u128::from(ms) && found <= u128::from(ms + ms / 8), "P{percent}: {found}");
        };
        near(50, 500);
        near(99, 990);
        assert_eq!((histogram.percentile(100), histogram.count()), (Duration::from_secs(1), 1_000));
        assert_eq!(Histogram::default().percentile(99), Duration::ZERO);
    }
}
