//! Latencies, counted in buckets that are 1.6 % wide at the most.

use std::time::Duration;

/// So many buckets for each doubling.
const FINE: u64 = 64;
const FINE_BITS: u32 = FINE.trailing_zeros();

/// How often each latency was seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Histogram {
    pub(crate) fn add(&mut self, latency: Duration) {
        self.add_times(latency, 1);
    }

    pub(crate) fn add_times(&mut self, latency: Duration, times: u64) {
        let bucket = bucket(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += times;
        }
        self.total += times;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (own, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *own += theirs;
        }
        self.total += other.total;
    }

    /// The latencies that were seen, in microseconds, and how often.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (f64, u64)> {
        let seen = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        seen.map(|(bucket, count)| (middle(bucket) / 1_000.0, *count))
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// The latency below which this part of all lies, in microseconds; `None` if there are none.
    pub(crate) fn quantile_us(&self, part: f64) -> Option<f64> {
        if self.total == 0 {
            return None;
        }
        let wanted = (self.total as f64 * part).ceil().max(1.0);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen as f64 >= wanted {
                return Some(middle(bucket) / 1_000.0);
            }
        }
        None
    }
}

/// Exact below `FINE`; above, the leading bits.
fn bucket(nanos: u64) -> usize {
    let bucket = if nanos < FINE {
        nanos
    } else {
        let shift = 63 - nanos.leading_zeros() - FINE_BITS;
        u64::from(shift + 1) * FINE + ((nanos >> shift) - FINE)
    };
    usize::try_from(bucket).unwrap_or(usize::MAX)
}

/// The middle of a bucket, in nanoseconds.
fn middle(bucket: usize) -> f64 {
    let bucket = bucket as u64;
    if bucket < FINE {
        return bucket as f64;
    }
    let (shift, within) = (bucket / FINE - 1, bucket % FINE);
    let width = 2_f64.powi(i32::try_from(shift).unwrap_or(i32::MAX));
    ((FINE + within) as f64 + 0.5) * width
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_is_found_again_within_its_width() {
        for nanos in (0..200).chain([1_000, 12_345, 999_999, 1_000_000_007, 3_600_000_000_000]) {
            let mut histogram = Histogram::default();
            histogram.add(Duration::from_nanos(nanos));
            let found = histogram.quantile_us(0.5).unwrap() * 1_000.0;
            assert!((found - nanos as f64).abs() <= nanos as f64 / 64.0 + 0.5, "{nanos} is found as {found}");
        }
    }

    #[test]
    fn quantiles_are_of_all_that_was_added() {
        let (mut low, mut high) = (Histogram::default(), Histogram::default());
        (0..99).for_each(|_| low.add(Duration::from_micros(10)));
        high.add(Duration::from_millis(10));
        low.merge(&high);
        assert_eq!(low.total(), 100);
        assert!((low.quantile_us(0.5).unwrap() - 10.0).abs() < 0.2);
        assert!((low.quantile_us(0.99).unwrap() - 10.0).abs() < 0.2);
        assert!((low.quantile_us(0.995).unwrap() - 10_000.0).abs() < 160.0);
        assert_eq!(Histogram::default().quantile_us(0.5), None);
    }
}
