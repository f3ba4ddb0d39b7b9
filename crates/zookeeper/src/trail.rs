//! What answered heartbeats prove of what the leader has heard.

use fencelock_core::Moment;
use std::collections::VecDeque;
use std::time::Duration;

/// How many heartbeats are told apart in the margin; closer ones count as one.
const GRAINS: u32 = 64;

/// Heartbeats that were answered.
///
/// A follower passes on to its leader which sessions it has heard of, and only
/// those it has heard of since it did so last. So when it is cut off, the leader
/// counts down from some heartbeat *before* the last one that it was told of,
/// however long before. The follower answers for no longer than the margin, so
/// what it had answered that long before a heartbeat was passed on, and from
/// there the time is counted. With heartbeats close together that is little
/// less than the margin taken off the last one; after a silence it is less by the silence.
#[derive(Debug)]
pub(crate) struct Trail {
    margin: Duration,
    /// When the last heartbeat left that was answered.
    last: Moment,
    /// When the last one left that has certainly been passed on.
    passed_on: Moment,
    /// Sent and answered, later than that.
    open: VecDeque<(Moment, Moment)>,
}

impl Trail {
    /// Of a session whose opening, in which the leader takes part, was sent at `sent`.
    pub(crate) fn since(sent: Moment, margin: Duration) -> Self {
        Self { margin, last: sent, passed_on: sent, open: VecDeque::new() }
    }

    pub(crate) fn answered(&mut self, sent: Moment, answered: Moment) {
        self.last = self.last.max(sent);
        if self.margin.is_zero() {
            return;
        }
        let newest = self.open.back().map_or(self.passed_on, |(sent, _)| *sent);
        if sent >= newest.plus(self.margin / GRAINS) {
            self.open.push_back((sent, answered));
        }
        while let Some((sent, answered)) = self.open.front().copied()
            && answered.plus(self.margin) <= self.last
        {
            self.passed_on = self.passed_on.max(sent);
            self.open.pop_front();
        }
    }

    pub(crate) fn last(&self) -> Moment {
        self.last
    }

    /// The moment from which the session, less the margin, may be believed.
    pub(crate) fn proved(&self) -> Moment {
        if self.margin.is_zero() { self.last } else { self.last.min(self.passed_on.plus(self.margin)) }
    }

    /// Whether what is sent `now` has to be answered by the leader too. A server
    /// that was frozen answers what it was sent meanwhile before it notices that
    /// the others went on without it.
    pub(crate) fn is_broken(&self, now: Moment) -> bool {
        !self.margin.is_zero() && now.since(self.last) > self.margin / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::from_nanos(millis * 1_000_000)
    }

    fn beat(trail: &mut Trail, sent: u64) {
        trail.answered(at(sent), at(sent + 10));
    }

    #[test]
    fn a_heartbeat_counts_from_what_was_answered_a_margin_before() {
        let mut trail = Trail::since(at(0), Duration::from_secs(10));
        for sent in (1_000..=10_000).step_by(1_000) {
            beat(&mut trail, sent);
            assert_eq!(trail.proved(), at(sent), "the opening was the leader's");
        }
        beat(&mut trail, 11_000);
        assert_eq!(trail.proved(), at(10_000), "the one of 1 s was answered at 1.01 s");
        beat(&mut trail, 11_010);
        assert_eq!(trail.proved(), at(11_000));
    }

    #[test]
    fn a_silence_is_not_believed_away() {
        let mut trail = Trail::since(at(0), Duration::from_secs(10));
        beat(&mut trail, 20_000);
        assert_eq!((trail.proved(), trail.last()), (at(10_000), at(20_000)));
        beat(&mut trail, 29_000);
        assert_eq!(trail.proved(), at(10_000), "not known to be passed on");
        beat(&mut trail, 30_010);
        assert_eq!(trail.proved(), at(30_000));
        // An answer that comes late takes nothing back.
        trail.answered(at(25_000), at(31_000));
        assert_eq!(trail.proved(), at(30_000));
    }

    #[test]
    fn many_heartbeats_take_no_room() {
        let mut trail = Trail::since(at(0), Duration::from_secs(10));
        for sent in 0..100_000 {
            beat(&mut trail, sent);
        }
        assert!(trail.open.len() <= 70, "{}", trail.open.len());
        assert!(trail.last().since(trail.proved()) < Duration::from_millis(200));
    }

    #[test]
    fn without_a_margin_the_last_one_counts() {
        let mut trail = Trail::since(at(0), Duration::ZERO);
        beat(&mut trail, 5_000);
        assert_eq!(trail.proved(), at(5_000));
        assert!(!trail.is_broken(at(50_000)) && trail.open.is_empty());
    }

    #[test]
    fn a_gap_wants_the_leaders_word() {
        let trail = Trail::since(at(0), Duration::from_secs(10));
        assert!(!trail.is_broken(at(5_000)) && trail.is_broken(at(5_001)));
    }
}
