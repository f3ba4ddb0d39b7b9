//! The clock that deadlines are read from.
//!
//! A deadline must go on running while the machine is suspended, because the
//! server's does. On Linux [`std::time::Instant`] stops in suspend, so
//! [`Clock::system`] reads `CLOCK_BOOTTIME` there and falls back to `Instant`
//! elsewhere. (`clock_gettime(2)` describes both clocks.)

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A point in time on one [`Clock`], in nanoseconds from that clock's own start.
///
/// Moments of different clocks cannot be compared; a client hands its clock to
/// its engine with every [`Claim`](crate::Claim), so that both use the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The moment `nanos` nanoseconds after the clock's start.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's start.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// This moment and `later` after it, stopping at the end of time instead of overflowing.
    #[must_use]
    pub fn plus(self, later: Duration) -> Self {
        Self(self.0.saturating_add(nanos(later)))
    }

    /// How long after `earlier` this moment is; zero if it is not after it.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

pub(crate) fn nanos(d: Duration) -> u64 {
    d.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(d.subsec_nanos()))
}

/// Where moments come from. Cloning is cheap and gives the same clock.
#[derive(Clone)]
pub struct Clock(Source);

#[derive(Clone)]
enum Source {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    Boot,
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    Monotonic,
    Fake(Arc<Fake>),
}

impl Clock {
    /// The machine's clock: `CLOCK_BOOTTIME` on Linux and Android, `Instant` elsewhere.
    #[must_use]
    pub fn system() -> Self {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        return Self(Source::Boot);
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        return Self(Source::Monotonic);
    }

    /// The present moment.
    #[must_use]
    pub fn now(&self) -> Moment {
        match &self.0 {
            #[cfg(any(target_os = "linux", target_os = "android"))]
            Source::Boot => {
                let t = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
                let secs = u64::try_from(t.tv_sec).unwrap_or(0);
                let nanos = u64::try_from(t.tv_nsec).unwrap_or(0);
                Moment(secs.saturating_mul(1_000_000_000).saturating_add(nanos))
            }
            #[cfg(not(any(target_os = "linux", target_os = "android")))]
            Source::Monotonic => Moment(nanos(origin().elapsed())),
            Source::Fake(fake) => fake.now(),
        }
    }
}

/// One origin a process, so that the moments of any two system clocks can be compared.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn origin() -> std::time::Instant {
    static ORIGIN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    *ORIGIN.get_or_init(std::time::Instant::now)
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            #[cfg(any(target_os = "linux", target_os = "android"))]
            Source::Boot => "Clock(boot time)",
            #[cfg(not(any(target_os = "linux", target_os = "android")))]
            Source::Monotonic => "Clock(monotonic)",
            Source::Fake(_) => "Clock(fake)",
        })
    }
}

/// A clock for tests: it follows tokio's clock, paused or not, and can be told
/// that the machine was suspended.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// use fencelock_core::FakeClock;
/// use std::time::Duration;
///
/// let fake = FakeClock::new();
/// let before = fake.clock().now();
/// fake.suspend(Duration::from_secs(60)); // no timer moves, the clock does
/// assert_eq!(fake.clock().now().since(before), Duration::from_secs(60));
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct FakeClock(Arc<Fake>);

#[derive(Debug)]
struct Fake {
    start: tokio::time::Instant,
    suspended: AtomicU64,
}

impl Fake {
    fn now(&self) -> Moment {
        // One hour ahead, so that no moment a test can reach is near the clock's start.
        let base = 3_600_000_000_000;
        let slept = self.suspended.load(Ordering::SeqCst);
        Moment(nanos(self.start.elapsed()).saturating_add(slept).saturating_add(base))
    }
}

impl FakeClock {
    /// A clock that starts now and runs as tokio's does.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(Fake { start: tokio::time::Instant::now(), suspended: AtomicU64::new(0) }))
    }

    /// The clock to give to a client and its engine.
    #[must_use]
    pub fn clock(&self) -> Clock {
        Clock(Source::Fake(Arc::clone(&self.0)))
    }

    /// Moves the clock on by `d` while all timers stand still, as a suspend does.
    pub fn suspend(&self, d: Duration) {
        self.0.suspended.fetch_add(nanos(d), Ordering::SeqCst);
    }
}

impl Default for FakeClock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_goes_forward() {
        let clock = Clock::system();
        let a = clock.now();
        std::thread::sleep(Duration::from_millis(2));
        assert!(clock.now().since(a) >= Duration::from_millis(2));
    }

    #[test]
    fn arithmetic_stops_at_the_ends() {
        let end = Moment::from_nanos(u64::MAX);
        assert_eq!(end.plus(Duration::MAX), end);
        assert_eq!(Moment::from_nanos(1).since(Moment::from_nanos(2)), Duration::ZERO);
    }
}
