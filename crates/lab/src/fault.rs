//! What is done to workers and servers.

use std::fmt;

/// A kind of fault. A deployment says which of those at servers it can suffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fault {
    /// Nothing: what a healthy deployment does.
    None,
    /// A holder's process is killed.
    HolderKilled,
    /// A holder is stopped for half its ttl.
    HolderStoppedShort,
    /// A holder is stopped for two ttls.
    HolderStoppedLong,
    /// A holder's connection is cut, and new ones are refused for a while.
    HolderCut,
    /// A holder's requests arrive, and their answers are dropped.
    RepliesDropped,
    /// A holder's answers come late, and when one has said that it holds, what it asks next does not arrive before the end.
    RepliesLate,
    /// A holder's requests arrive late.
    RequestsDelayed,
    /// What one half of the workers asks comes late to a minority of the servers, and what the others ask to the rest.
    VotesSplit,
    /// Every request arrives twice.
    RequestsTwice,
    /// All servers are stopped for two ttls.
    ServersStopped,
    /// A server is killed and started again with its data.
    ServerRestarted,
    /// A server is killed and started again without its data.
    ServerWiped,
    /// The leader is killed and comes back.
    LeaderKilled,
    /// The leader is cut off from the other members, and reached by its clients.
    LeaderIsolated,
    /// The leader stands still while another takes its place, and then goes on.
    LeaderStopped,
    /// A follower is cut off from the leader alone.
    FollowerCut,
    /// A replica is promoted that has not heard the last writes.
    FailedOver,
    /// The servers' clocks (of a majority) jump forward past the ttl.
    ClockForward,
    /// They jump back.
    ClockBack,
    /// They run at double speed.
    ClockFast,
    /// Keys are evicted to make room.
    Evicted,
    /// Everything is deleted by an operator.
    Flushed,
    /// A node comes back with counters and without locks, and counts at once.
    ReplacedAtOnce,
    /// A node comes back empty and is given its counters after the delay.
    ReplacedAfterDelay,
}

impl Fault {
    /// As in reports and on the command line.
    pub(crate) const fn id(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::HolderKilled => "holder-killed",
            Self::HolderStoppedShort => "holder-stopped-short",
            Self::HolderStoppedLong => "holder-stopped-long",
            Self::HolderCut => "holder-cut",
            Self::RepliesDropped => "replies-dropped",
            Self::RepliesLate => "replies-late",
            Self::RequestsDelayed => "requests-delayed",
            Self::VotesSplit => "votes-split",
            Self::RequestsTwice => "requests-twice",
            Self::ServersStopped => "servers-stopped",
            Self::ServerRestarted => "server-restarted",
            Self::ServerWiped => "server-wiped",
            Self::LeaderKilled => "leader-killed",
            Self::LeaderIsolated => "leader-isolated",
            Self::LeaderStopped => "leader-stopped",
            Self::FollowerCut => "follower-cut",
            Self::FailedOver => "failed-over",
            Self::ClockForward => "clock-forward",
            Self::ClockBack => "clock-back",
            Self::ClockFast => "clock-fast",
            Self::Evicted => "evicted",
            Self::Flushed => "flushed",
            Self::ReplacedAtOnce => "replaced-at-once",
            Self::ReplacedAfterDelay => "replaced-after-delay",
        }
    }

    /// Whether what a server has acknowledged is gone, which no engine withstands and which says nothing against any.
    pub(crate) const fn is_a_loss(self) -> bool {
        matches!(self, Self::ServerWiped | Self::Evicted | Self::Flushed | Self::ReplacedAtOnce)
    }

    /// Whether it is over as soon as it is done.
    pub(crate) const fn is_at_once(self) -> bool {
        matches!(
            self,
            Self::ServerRestarted
                | Self::ServerWiped
                | Self::Evicted
                | Self::Flushed
                | Self::ClockForward
                | Self::ClockBack
                | Self::ReplacedAtOnce
                | Self::ReplacedAfterDelay
        )
    }

    /// Whether it is done to one worker, and hits only if that one holds.
    pub(crate) const fn is_at_a_holder(self) -> bool {
        matches!(
            self,
            Self::HolderKilled
                | Self::HolderStoppedShort
                | Self::HolderStoppedLong
                | Self::HolderCut
                | Self::RepliesDropped
                | Self::RepliesLate
                | Self::RequestsDelayed
        )
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.id())
    }
}
