//! How a lock is asked for.

use crate::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::time::Duration;

/// The shortest time to live.
pub const MIN_TTL: Duration = Duration::from_millis(50);
/// The longest time to live, and the longest lock delay.
pub const MAX_TTL: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// The largest [cohort](AcquireOptions::cohort): tokens that begin at a server's
/// microseconds do not outrun its clock with so many reserved by each of 9,900 grants a second that share a counter.
pub const MAX_COHORT: u32 = 100;

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
/// | cohort | none: each holder asks the server |
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
    /// How often the lock may pass on within the client before the server has it back.
    ///
    /// With 1 to [`MAX_COHORT`], a hold that is released while calls of the same client
    /// wait for its name with the same ttl, lock delay and note passes to the first of
    /// them, without a request: the server goes on to see one hold, with the first
    /// holder's claim id and the last of the tokens that its grant reserved, and each
    /// local holder has a token of its own, larger than those before it under that grant
    /// and smaller than those of the next grant. After so many passes, or 50 ms (a third of
    /// the ttl, if that is less) after the grant, the lock goes back, and other clients have
    /// the chance that any release gives; until then they wait, and where waiters are served
    /// in order local ones go before them. Where waiters are not [told](crate::Capability::NotifiedWaiting)
    /// of a release they meet the lock free so much more rarely, and may wait in vain. 0, the
    /// default, passes nothing on. Neither does a fixed lease, and nothing passes to a fixed
    /// lease or to a call that does not wait. A hold that may pass on has no
    /// [evidence](crate::LockGuard::evidence), which could not tell one holder from the next.
    ///
    /// The server is not asked, so what it took away in that time, by a forced release or
    /// since its clock was stepped, may pass on all the same. Who gets it then learns of
    /// that when the holder before would have, by a renewal, and has a token smaller than
    /// that of whom the server served since: a [gate](crate::Gate) refuses it from when that
    /// one has entered.
    ///
    /// The engine needs [`Capability::Cohort`](crate::Capability::Cohort): those in memory, on SQL and on Redis
    /// have it. On etcd and `ZooKeeper` a token is the store's own count of its changes, of which none can be set
    /// aside; on Redlock it is not built. What it saves is round trips, of
    /// which the engine in memory has none. (The idea is that
    /// of lock cohorting: Dice, Marathe and Shavit, `PPoPP` 2012.)
    pub cohort: u32,
}

impl Default for AcquireOptions {
    fn default() -> Self {
        let (ttl, wait) = (Duration::from_secs(30), Wait::AtMost(Duration::from_secs(30)));
        Self { ttl, wait, lock_delay: Duration::ZERO, max_hold: None, auto_renew: true, note: None, cohort: 0 }
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

    /// How often the lock may pass on within the client, at most [`MAX_COHORT`]; see [`cohort`](Self::cohort).
    #[must_use]
    pub fn with_cohort(mut self, most: u32) -> Self {
        self.cohort = most;
        self
    }

    /// How many tokens a grant is to reserve for those it passes to. A fixed lease passes to nobody:
    /// what is left of it is less than the next one asked for.
    pub(crate) fn reserve(&self) -> u32 {
        if self.auto_renew { self.cohort } else { 0 }
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
        if self.cohort > MAX_COHORT {
            return Err(invalid(format!("cohort is at most {MAX_COHORT}, not {}", self.cohort)));
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
    if d.subsec_nanos().is_multiple_of(1_000_000) {
        return d;
    }
    let nanos = d.subsec_nanos().next_multiple_of(1_000_000);
    Duration::from_secs(d.as_secs()).saturating_add(Duration::from_nanos(nanos.into()))
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
        assert_eq!(odd(|o| o.cohort = MAX_COHORT + 1), ErrorKind::InvalidConfig);
    }
}
