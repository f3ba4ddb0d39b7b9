//! How a lock is asked for.

use crate::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::time::Duration;

/// The shortest time to live.
pub const MIN_TTL: Duration = Duration::from_millis(50);
/// The longest time to live, and the longest lock delay.
pub const MAX_TTL: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// How long to wait for another holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wait {
    /// At most this long, counted from the call.
    AtMost(Duration),
    /// Until it is granted, as long as the service answers: after a minute
    /// without an answer the wait ends with `Unavailable`.
    Forever,
}

/// Options of one acquisition; a client has its defaults.
///
/// | option | default |
/// |---|---|
/// | ttl | 30 s |
/// | wait | at most 30 s |
/// | lock delay | none |
/// | longest hold | none; set one, so that a hung job cannot hold for ever |
/// | renewal | automatic |
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AcquireOptions {
    /// Time to live, 50 ms to 7 days; parts of a millisecond round up.
    pub ttl: Duration,
    /// How long to wait for another holder.
    pub wait: Wait,
    /// How long after the holder's deadline a lock freed by failure stays closed.
    pub lock_delay: Duration,
    /// The longest hold; when it is reached the hold is lost.
    pub max_hold: Option<Duration>,
    /// Whether the hold is renewed until it is released.
    pub auto_renew: bool,
    /// A note stored with the lock.
    pub note: Option<Arc<str>>,
}

impl Default for AcquireOptions {
    fn default() -> Self {
        let (ttl, wait) = (Duration::from_secs(30), Wait::AtMost(Duration::from_secs(30)));
        Self { ttl, wait, lock_delay: Duration::ZERO, max_hold: None, auto_renew: true, note: None }
    }
}

impl AcquireOptions {
    /// Time to live, 50 ms to 7 days.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long to wait for another holder.
    #[must_use]
    pub fn with_wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// How long after the holder's deadline a lock freed by failure stays closed.
    #[must_use]
    pub fn with_lock_delay(mut self, delay: Duration) -> Self {
        self.lock_delay = delay;
        self
    }

    /// The longest hold.
    #[must_use]
    pub fn with_max_hold(mut self, longest: Duration) -> Self {
        self.max_hold = Some(longest);
        self
    }

    /// A note of at most 1024 bytes, stored with the lock.
    #[must_use]
    pub fn with_note(mut self, note: impl Into<Arc<str>>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// Whether the hold is renewed until it is released.
    #[must_use]
    pub fn with_auto_renew(mut self, renew: bool) -> Self {
        self.auto_renew = renew;
        self
    }

    /// The same options with times rounded up to whole milliseconds.
    ///
    /// # Errors
    /// `InvalidConfig` names the option that is out of bounds.
    pub fn checked(mut self) -> Result<Self> {
        self.ttl = check_ttl(self.ttl)?;
        self.lock_delay = check_delay(self.lock_delay)?;
        if self.max_hold.is_some_and(|most| most.is_zero()) {
            return Err(invalid("max_hold is longer than nothing; leave it out for none".to_owned()));
        }
        if self.note.as_ref().is_some_and(|note| note.len() > 1024) {
            return Err(invalid("a note has at most 1024 bytes".to_owned()));
        }
        Ok(self)
    }
}

pub(crate) fn check_ttl(ttl: Duration) -> Result<Duration> {
    let whole = whole_millis(ttl);
    if whole < MIN_TTL || whole > MAX_TTL {
        return Err(invalid(format!("ttl is 50 ms to 7 days, not {ttl:?}")));
    }
    Ok(whole)
}

pub(crate) fn check_delay(delay: Duration) -> Result<Duration> {
    let whole = whole_millis(delay);
    if whole > MAX_TTL {
        return Err(invalid(format!("lock_delay is at most 7 days, not {delay:?}")));
    }
    Ok(whole)
}

fn whole_millis(d: Duration) -> Duration {
    let millis = d.as_nanos().div_ceil(1_000_000);
    u64::try_from(millis).map_or(Duration::MAX, Duration::from_millis)
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidConfig, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ttl_bounds_and_rounding() {
        assert_eq!(check_ttl(Duration::from_nanos(50_000_001)).unwrap(), Duration::from_millis(51));
        assert_eq!(check_ttl(MAX_TTL).unwrap(), MAX_TTL);
        for bad in
            [Duration::ZERO, Duration::from_nanos(1), Duration::from_millis(49), MAX_TTL + MIN_TTL, Duration::MAX]
        {
            assert_eq!(check_ttl(bad).unwrap_err().kind(), ErrorKind::InvalidConfig, "{bad:?}");
        }
    }

    #[test]
    fn odd_options_are_refused() {
        let odd = |change: fn(&mut AcquireOptions)| {
            let mut options = AcquireOptions::default();
            change(&mut options);
            options.checked().unwrap_err().kind()
        };
        assert_eq!(odd(|o| o.max_hold = Some(Duration::ZERO)), ErrorKind::InvalidConfig);
        assert_eq!(odd(|o| o.lock_delay = Duration::MAX), ErrorKind::InvalidConfig);
        assert_eq!(odd(|o| o.note = Some("x".repeat(1025).into())), ErrorKind::InvalidConfig);
    }
}
