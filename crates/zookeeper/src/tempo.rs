//! How long a session may be believed, and how often it is proved.

use std::time::Duration;

/// What the ensemble says of its own time, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ticks {
    /// The unit of time.
    pub(crate) tick: Option<Duration>,
    /// How many units a follower may be without word from its leader.
    pub(crate) sync_limit: Option<u32>,
    /// Whether the server is alone, and so cannot be cut off from a leader.
    pub(crate) standalone: bool,
}

impl Ticks {
    /// How long a server that is cut off from its leader may go on answering:
    /// `syncLimit · tickTime` until it notices, and one tick for what it had not
    /// passed on before. `None` if that is not known.
    pub(crate) fn lag(&self) -> Option<Duration> {
        if self.standalone {
            return Some(Duration::ZERO);
        }
        Some(self.tick?.saturating_mul(self.sync_limit?.saturating_add(1)))
    }
}

/// The times of one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tempo {
    /// The session's time-out as negotiated.
    pub(crate) session: Duration,
    /// What is taken off it for a server that answers though it is cut off.
    pub(crate) margin: Duration,
}

impl Tempo {
    /// A session that would be left with less than a quarter of itself is not
    /// shortened: it would be lost between two heartbeats. It is advisory then.
    pub(crate) fn new(session: Duration, lag: Option<Duration>) -> Self {
        let margin = lag.filter(|lag| is_long_enough(session, *lag)).unwrap_or_default();
        Self { session, margin }
    }

    /// What a holder may believe after an answered heartbeat.
    pub(crate) fn usable(&self) -> Duration {
        self.session.saturating_sub(self.margin)
    }

    /// From one heartbeat to the next. With a margin a heartbeat counts from one
    /// before it (`Trail`), so they are closer together then.
    pub(crate) fn interval(&self) -> Duration {
        if self.margin.is_zero() { self.usable() / 3 } else { (self.usable() / 8).min(self.margin / 4) }
    }

    /// How much of the session a lock delay may take.
    pub(crate) fn longest_delay(&self) -> Duration {
        self.usable() / 3
    }

    /// How old the last heartbeat may be when a lock is granted, so that the holder has some time of it.
    pub(crate) fn fresh(&self) -> Duration {
        self.usable() / 4
    }

    /// How long a heartbeat may take before contact counts as broken.
    pub(crate) fn patience(&self) -> Duration {
        self.usable() / 10
    }

    /// How long a connection may be silent before another server is tried.
    pub(crate) fn silence(&self) -> Duration {
        self.usable() * 2 / 5
    }
}

/// Whether `session` can be shortened by `lag` and still be of use.
pub(crate) fn is_long_enough(session: Duration, lag: Duration) -> bool {
    session.saturating_sub(lag) >= session / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn ticks(tick: u64, sync_limit: u32) -> Ticks {
        Ticks { tick: Some(SECOND * u32::try_from(tick).unwrap()), sync_limit: Some(sync_limit), standalone: false }
    }

    #[test]
    fn a_long_session_is_shortened_and_a_short_one_is_not() {
        let long = Tempo::new(SECOND * 30, ticks(2, 5).lag());
        assert_eq!((long.margin, long.longest_delay()), (SECOND * 12, SECOND * 6));
        assert_eq!(long.interval(), SECOND * 9 / 4);
        assert_eq!(Tempo::new(SECOND * 30, ticks(1, 1).lag()).interval(), SECOND / 2);
        assert_eq!(Tempo::new(SECOND * 15, ticks(2, 5).lag()).margin, Duration::ZERO);
        assert_eq!(Tempo::new(SECOND * 16, ticks(2, 5).lag()).margin, SECOND * 12);
        assert_eq!(Tempo::new(SECOND * 4, ticks(2, 5).lag()).interval(), SECOND * 4 / 3);
    }

    #[test]
    fn what_is_not_known_is_not_guessed() {
        assert_eq!(Ticks { tick: Some(SECOND), ..Ticks::default() }.lag(), None);
        assert_eq!(Ticks { standalone: true, ..Ticks::default() }.lag(), Some(Duration::ZERO));
        assert_eq!(ticks(u64::from(u32::MAX), u32::MAX).lag().map(|lag| lag > SECOND), Some(true));
    }
}
