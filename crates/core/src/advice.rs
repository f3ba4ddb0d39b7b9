//! How long a lock should live, by how long its holds take.

use crate::observe::histogram::Histogram;
use crate::{LockName, MAX_TTL};
use std::fmt;
use std::time::Duration;

/// Never advised to be shorter: a process may well be paused for that long.
const SHORTEST: Duration = Duration::from_secs(1);
/// A ttl so many times longer than it should be is absurd: a crash blocks others for as long.
const ABSURD: u32 = 20;

/// The prefix by which times of holds are kept: the name up to and including its
/// last `/` or `:`, or the whole of it if it has neither.
///
/// ```
/// assert_eq!(fencelock_core::prefix_of("orders/eu/1001"), "orders/eu/");
/// assert_eq!(fencelock_core::prefix_of("nightly"), "nightly");
/// ```
#[must_use]
pub fn prefix_of(name: &str) -> &str {
    let last = name.bytes().rposition(|byte| matches!(byte, b'/' | b':'));
    last.and_then(|at| name.get(..=at)).unwrap_or(name)
}

/// What the holds so far say of a good ttl; made by [`LockClient::advice`](crate::LockClient::advice).
///
/// A good ttl is 2 to 3 times what 99 of 100 holds take, above the time-out of the
/// slowest thing that holders wait for, which only the caller knows: tell it with
/// [`above`](Self::above). Percentiles are at most an eighth too long.
///
/// Keeping the times costs a grant and its end some 60 ns together on one prefix, and
/// 300 ns on 128 (measured); they are kept for as long as the client lives.
///
/// ```
/// use fencelock_core::Advice;
/// use std::time::Duration;
/// let holds = (1..=100).map(|n| Duration::from_millis(20 * n));
/// let advice = Advice::from_holds(holds, [Duration::from_secs(600)]).above(Duration::from_secs(10));
/// assert_eq!(advice.max(), Duration::from_secs(2));
/// assert_eq!(advice.ttl(), Some(Duration::from_secs(11)));
/// assert_eq!(advice.warnings().len(), 1, "ten minutes are absurdly long");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    holds: u64,
    p50: Duration,
    p99: Duration,
    max: Duration,
    ttls: Option<(Duration, Duration)>,
    slowest: Duration,
    hot: Vec<(LockName, u64)>,
}

/// What is wrong with how a lock is used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdviceWarning {
    /// Holds were granted a ttl shorter than twice their P99 or than a dependency's time-out.
    TtlTooShort {
        /// The shortest that was used.
        ttl: Duration,
        /// The shortest that would do.
        least: Duration,
    },
    /// Holds were granted a ttl that makes others wait absurdly long after a crash.
    TtlTooLong {
        /// The longest that was used.
        ttl: Duration,
        /// What would do.
        advised: Duration,
    },
    /// Many wait for one name: split it.
    HotName {
        /// The name.
        name: LockName,
        /// How many waited on average.
        waiting: u64,
    },
}

impl Advice {
    pub(crate) fn of(holds: &Histogram, ttls: Option<(Duration, Duration)>) -> Self {
        let (p50, p99, max) = (holds.percentile(50), holds.percentile(99), holds.max());
        Self { holds: holds.count(), p50, p99, max, ttls, slowest: Duration::ZERO, hot: Vec::new() }
    }

    /// Advice by times that were measured elsewhere: how long holds took, and the
    /// ttls that were configured.
    #[must_use]
    pub fn from_holds(holds: impl IntoIterator<Item = Duration>, ttls: impl IntoIterator<Item = Duration>) -> Self {
        let mut histogram = Histogram::default();
        holds.into_iter().for_each(|held| histogram.add(held));
        let ends = |ends: Option<(Duration, Duration)>, ttl: Duration| {
            Some(ends.map_or((ttl, ttl), |(shortest, longest)| (shortest.min(ttl), longest.max(ttl))))
        };
        Self::of(&histogram, ttls.into_iter().fold(None, ends))
    }

    /// The names that many wait for, and how many.
    #[must_use]
    pub fn with_hot_names(mut self, hot: Vec<(LockName, u64)>) -> Self {
        self.hot = hot;
        self
    }

    /// The time-out of the slowest thing that holders wait for: the ttl is to be longer.
    #[must_use]
    pub fn above(mut self, slowest_timeout: Duration) -> Self {
        self.slowest = slowest_timeout;
        self
    }

    /// How many holds have ended.
    #[must_use]
    pub fn holds(&self) -> u64 {
        self.holds
    }

    /// What half of the holds did not exceed.
    #[must_use]
    pub fn p50(&self) -> Duration {
        self.p50
    }

    /// What 99 of 100 holds did not exceed.
    #[must_use]
    pub fn p99(&self) -> Duration {
        self.p99
    }

    /// The longest hold.
    #[must_use]
    pub fn max(&self) -> Duration {
        self.max
    }

    /// The shortest and the longest ttl that was granted, if any was.
    #[must_use]
    pub fn ttls(&self) -> Option<(Duration, Duration)> {
        self.ttls
    }

    /// The advised ttl, rounded up to two digits: 2.5 times the P99, longer than
    /// the slowest time-out by a tenth, and a second at least. `None` while no hold has ended.
    #[must_use]
    pub fn ttl(&self) -> Option<Duration> {
        let by_holds = self.p99.saturating_mul(5) / 2;
        let by_timeout = self.slowest.saturating_add(self.slowest / 10);
        let ttl = two_digits(by_holds.max(by_timeout).max(SHORTEST)).min(MAX_TTL);
        (self.holds > 0).then_some(ttl)
    }

    /// What is wrong, as far as the holds show it.
    #[must_use]
    pub fn warnings(&self) -> Vec<AdviceWarning> {
        let mut warnings = Vec::new();
        if let (Some((shortest, longest)), Some(advised)) = (self.ttls, self.ttl()) {
            let least = self.p99.saturating_mul(2).max(self.slowest).min(MAX_TTL);
            if shortest < least {
                warnings.push(AdviceWarning::TtlTooShort { ttl: shortest, least });
            }
            if longest > advised.saturating_mul(ABSURD).max(Duration::from_secs(60)) {
                warnings.push(AdviceWarning::TtlTooLong { ttl: longest, advised });
            }
        }
        let hot =
            self.hot.iter().map(|(name, waiting)| AdviceWarning::HotName { name: name.clone(), waiting: *waiting });
        warnings.extend(hot);
        warnings
    }
}

/// Rounded up to two significant digits of milliseconds.
fn two_digits(ttl: Duration) -> Duration {
    let millis = u64::try_from(ttl.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    let unit = 10_u64.saturating_pow(millis.checked_ilog10().unwrap_or_default().saturating_sub(1));
    Duration::from_millis(millis.div_ceil(unit).saturating_mul(unit))
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(ttl) = self.ttl() else { return f.write_str("no hold has ended yet") };
        let (p50, p99, max) = (self.p50, self.p99, self.max);
        write!(f, "{} holds, P50 {p50:?}, P99 {p99:?}, longest {max:?}: advised ttl {ttl:?}", self.holds)
    }
}

impl fmt::Display for AdviceWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TtlTooShort { ttl, least } => {
                write!(f, "a ttl of {ttl:?} is too short: what holders do may take longer; {least:?} at least")
            }
            Self::TtlTooLong { ttl, advised } => {
                write!(
                    f,
                    "a ttl of {ttl:?} is absurdly long: a crash blocks others for all of it; {advised:?} would do"
                )
            }
            Self::HotName { name, waiting } => {
                write!(f, "{name} is hot: {waiting} wait for it on average; split it into several names")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn two_to_three_times_p99_above_the_slowest_dependency() {
        for p99 in [700, 1_234, 9_999, 60_000] {
            let advice = Advice::from_holds([ms(p99)], []);
            let ttl = advice.ttl().unwrap();
            assert!(ttl >= ms(p99) * 2 && ttl <= ms(p99) * 3, "{p99}: {ttl:?}");
            assert_eq!(advice.clone().above(ms(90_000)).ttl().unwrap().max(ttl), ms(99_000).max(ttl));
        }
        assert_eq!(Advice::from_holds([ms(3)], []).ttl(), Some(SHORTEST));
        assert_eq!(Advice::from_holds([], [ms(5)]).ttl(), None);
        assert_eq!(Advice::from_holds([Duration::MAX], []).ttl(), Some(MAX_TTL));
    }

    #[test]
    fn warns_of_what_is_too_short_absurdly_long_or_hot() {
        let short = Advice::from_holds([ms(1_000)], [ms(1_500)]).warnings();
        assert!(matches!(short[..], [AdviceWarning::TtlTooShort { least, .. }] if least == ms(2_000)), "{short:?}");
        let long = Advice::from_holds([ms(100)], [ms(86_400_000)]).warnings();
        assert!(matches!(long[..], [AdviceWarning::TtlTooLong { .. }]), "{long:?}");
        assert!(Advice::from_holds([ms(100)], [ms(30_000)]).warnings().is_empty());
        assert_eq!(Advice::from_holds([ms(100)], [ms(30_000)]).above(ms(31_000)).warnings().len(), 1);
        let hot = vec![(LockName::new("a").unwrap(), 9)];
        assert!(Advice::from_holds([], []).with_hot_names(hot).warnings()[0].to_string().contains("split"));
    }
}
