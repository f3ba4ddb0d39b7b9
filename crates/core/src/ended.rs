//! How a hold ends, and why it was lost.

use std::fmt;

/// Why a hold was lost. Final: a lost hold never comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// The deadline passed without a renewal that was acknowledged in time.
    Expired,
    /// The service says that another claim, or none, holds the lock.
    Revoked,
    /// The session or the runtime that kept the hold alive is gone.
    SessionEnded,
    /// The hold reached its own `max_hold`.
    MaxHold,
    /// The deployment no longer gives what was required of it, and the client was
    /// told to [refuse](crate::OnDegraded::Refuse) that. The service may keep the
    /// lock for as long as it was granted.
    Degraded,
}

impl LossReason {
    /// The reason as events and measures name it: `expired`, `revoked`, …
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Revoked => "revoked",
            Self::SessionEnded => "session_ended",
            Self::MaxHold => "max_hold",
            Self::Degraded => "degraded",
        }
    }
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its deadline passed",
            Self::Revoked => "the service gave it up or away",
            Self::SessionEnded => "its session ended",
            Self::MaxHold => "it reached its longest hold",
            Self::Degraded => "the deployment no longer gives what was required",
        })
    }
}

/// How a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ended {
    /// By our own release.
    Released,
    /// By losing it.
    Lost(LossReason),
}
