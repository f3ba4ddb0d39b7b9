//! Levels of correctness, and the rules that decide them.

use crate::{Error, ErrorKind, Result};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// How much a lock promises. Each level includes those below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Level {
    /// Holds are disjoint while the service is healthy; only the owner renews or
    /// releases; live again after healing. Withstands client crashes, cut
    /// connections and a server that is away. For saving duplicate work.
    Advisory,
    /// In addition loss is final and told before anyone else can be granted the
    /// lock: two holders never believe at once. Withstands partitions, pauses and
    /// server restarts, given [T1 to T4](crate::Assumption).
    Leased,
    /// In addition tokens are unique and grow in real time, so that a resource
    /// which checks them stays right, even where clocks fail (without T1 to T3)
    /// or the server loses power.
    Fenced,
    /// The same through fail-over and the lasting loss of any minority of servers.
    Replicated,
}

impl Level {
    /// All levels, weakest first.
    pub const ALL: [Self; 4] = [Self::Advisory, Self::Leased, Self::Fenced, Self::Replicated];

    /// The level's name in configuration: `advisory`, `leased`, `fenced`, `replicated`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Advisory => "advisory",
            Self::Leased => "leased",
            Self::Fenced => "fenced",
            Self::Replicated => "replicated",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Level {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|l| l.as_str() == s).ok_or_else(|| {
            let message = format!("`{s}` is no level; there are advisory, leased, fenced and replicated");
            Error::new(ErrorKind::InvalidConfig, message)
        })
    }
}

/// How a rule came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RuleOutcome {
    /// The engine saw that it is so.
    Proved,
    /// The configuration says that it is so.
    Attested,
    /// Nobody could probe it; it is always listed.
    Assumed,
    /// It is not so.
    Refused,
    /// The server would not say.
    Unknown,
}

impl RuleOutcome {
    /// Whether a level that needs the rule can be promised.
    #[must_use]
    pub const fn holds(self) -> bool {
        matches!(self, Self::Proved | Self::Attested | Self::Assumed)
    }
}

impl fmt::Display for RuleOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Proved => "proved",
            Self::Attested => "attested",
            Self::Assumed => "assumed",
            Self::Refused => "refused",
            Self::Unknown => "unknown",
        })
    }
}

/// One condition on a deployment, with a stable id, and how it came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    id: &'static str,
    level: Level,
    outcome: RuleOutcome,
    reason: Cow<'static, str>,
    fix: Option<Cow<'static, str>>,
    attestable: bool,
}

impl Rule {
    /// The rule `id`, which `level` and all above it need. Unknown until said otherwise.
    #[must_use]
    pub const fn new(id: &'static str, level: Level) -> Self {
        let reason = Cow::Borrowed("not probed");
        Self { id, level, outcome: RuleOutcome::Unknown, reason, fix: None, attestable: false }
    }

    fn came_out(mut self, outcome: RuleOutcome, reason: impl Into<Cow<'static, str>>) -> Self {
        self.outcome = outcome;
        self.reason = reason.into();
        self
    }

    /// The engine saw that it is so.
    #[must_use]
    pub fn proved(self, reason: impl Into<Cow<'static, str>>) -> Self {
        self.came_out(RuleOutcome::Proved, reason)
    }

    /// Nobody can probe it; it is taken to be so, and listed.
    #[must_use]
    pub fn assumed(self, reason: impl Into<Cow<'static, str>>) -> Self {
        self.came_out(RuleOutcome::Assumed, reason)
    }

    /// The server would not say.
    #[must_use]
    pub fn unknown(self, reason: impl Into<Cow<'static, str>>) -> Self {
        self.came_out(RuleOutcome::Unknown, reason)
    }

    /// It is not so; `fix` says what to change.
    #[must_use]
    pub fn refused(self, reason: impl Into<Cow<'static, str>>, fix: impl Into<Cow<'static, str>>) -> Self {
        let mut rule = self.came_out(RuleOutcome::Refused, reason);
        rule.fix = Some(fix.into());
        rule
    }

    /// As it was kept: with a fix, whatever came out.
    pub(crate) fn kept(self, outcome: RuleOutcome, reason: &'static str, fix: Option<&'static str>) -> Self {
        let mut rule = self.came_out(outcome, reason);
        rule.fix = fix.map(Into::into);
        rule
    }

    /// Lets the configuration attest the rule when the engine could not prove it.
    ///
    /// Where the engine saw that the rule does not hold, it does not say this: what
    /// was disproved nobody can attest, apart from the few rules for which the
    /// evidence says less than the operator knows.
    #[must_use]
    pub const fn attestable(mut self) -> Self {
        self.attestable = true;
        self
    }

    /// Says that the rule holds, where the engine could not see it.
    ///
    /// # Errors
    /// `Refused` if the engine saw that it does not, with what it saw;
    /// `InvalidConfig` if nobody can attest it.
    pub(crate) fn attest(&mut self) -> Result<()> {
        if self.outcome == RuleOutcome::Proved {
            return Ok(());
        }
        if self.attestable {
            self.outcome = RuleOutcome::Attested;
            return Ok(());
        }
        let Self { id, reason, .. } = self;
        if self.outcome != RuleOutcome::Refused {
            return Err(Error::new(ErrorKind::InvalidConfig, format!("`{id}` cannot be attested: {reason}")));
        }
        let fix = self.fix.as_ref().map(|fix| format!("; {fix}")).unwrap_or_default();
        let message = format!("`{id}` is attested, and it is not so: {reason}{fix}, and take it out of `attest`");
        Err(Error::new(ErrorKind::Refused, message))
    }

    /// The rule's stable id, as in `attest = ["redis.persistence"]`.
    #[must_use]
    pub const fn id(&self) -> &'static str {
        self.id
    }

    /// The lowest level that needs the rule.
    #[must_use]
    pub const fn level(&self) -> Level {
        self.level
    }

    /// How it came out.
    #[must_use]
    pub const fn outcome(&self) -> RuleOutcome {
        self.outcome
    }

    /// What was seen.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// What to change, where it was refused.
    #[must_use]
    pub fn fix(&self) -> Option<&str> {
        self.fix.as_deref()
    }

    /// Whether the configuration may attest it.
    #[must_use]
    pub const fn is_attestable(&self) -> bool {
        self.attestable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_ordered_and_parse_back() {
        assert!(Level::ALL.is_sorted());
        for level in Level::ALL {
            assert_eq!(level.as_str().parse::<Level>().unwrap(), level);
        }
        assert!("fence".parse::<Level>().unwrap_err().message().contains("fenced"));
    }
}
