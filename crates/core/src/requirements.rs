//! What a program requires of the deployment that it locks in.

use crate::{Assumption, Capability, Error, ErrorKind, Guarantees, Level, Result};
use std::collections::BTreeSet;

/// What a deployment has to give, or the client is refused.
///
/// ```
/// use fencelock_core::{Assumption, Capability, Guarantees, Level, Liveness, Requirements, Scope};
/// let wanted = Requirements::default()
///     .with_level(Level::Advisory)
///     .with_capability(Capability::Fifo)
///     .with_forbidden(Assumption::ServerClock);
/// let found = Guarantees::of("mine", "one node", Scope::Network, Liveness::Lease)
///     .with_assumption(Assumption::ServerClock);
/// let e = wanted.check(&found).unwrap_err();
/// assert!(e.message().contains("`fifo` was required") && e.message().contains("T2"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requirements {
    level: Option<Level>,
    capabilities: BTreeSet<Capability>,
    forbidden: BTreeSet<Assumption>,
}

impl Requirements {
    /// At least `level`.
    #[must_use]
    pub fn with_level(mut self, level: Level) -> Self {
        self.level = Some(level);
        self
    }

    /// This capability, with those that were required before.
    #[must_use]
    pub fn with_capability(mut self, capability: Capability) -> Self {
        self.capabilities.insert(capability);
        self
    }

    /// A promise that does not lean on `assumption`, nor on those forbidden before.
    #[must_use]
    pub fn with_forbidden(mut self, assumption: Assumption) -> Self {
        self.forbidden.insert(assumption);
        self
    }

    /// Checks that what was found is enough.
    ///
    /// # Errors
    /// `Refused` says all that is missing: what was required, what the deployment
    /// is, which rule fails and why, what to set, or what to attest.
    pub fn check(&self, found: &Guarantees) -> Result<()> {
        let mut missing = Vec::new();
        if let Some(Err(refusal)) = self.level.map(|level| found.require(level)) {
            missing.push(refusal.message().to_owned());
        }
        for capability in self.capabilities.iter().filter(|capability| !found.has(**capability)) {
            let has: Vec<_> = found.capabilities().map(|c| format!("`{c}`")).collect();
            let has = if has.is_empty() { "no capability".to_owned() } else { has.join(", ") };
            missing.push(format!(
                "`{capability}` was required, and {} has {has}: another engine has it, see `fencelock guarantees`",
                found.deployment()
            ));
        }
        for assumption in found.assumptions().filter(|assumption| self.forbidden.contains(assumption)) {
            missing.push(format!(
                "`{}` ({assumption}) was forbidden, and {} leans on it: no setting changes that, another engine may do without, \
                 see `fencelock guarantees`",
                assumption.id(),
                found.deployment()
            ));
        }
        if missing.is_empty() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Refused, missing.join("; and ")).with_engine(found.engine().to_owned()))
    }
}

/// What a client does when its deployment no longer gives what was required.
///
/// That is found when the engine probes anew: after a reconnect, and as often as
/// [`ClientBuilder::reprobe`](crate::ClientBuilder::reprobe) says. A deployment that
/// cannot be asked has not changed, as far as anybody knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnDegraded {
    /// Traces a warning, `event = "degraded"`, and goes on.
    #[default]
    Warn,
    /// Refuses new acquires with [`Refused`](ErrorKind::Refused), and tells every hold
    /// that it is [lost](crate::LossReason::Degraded). When the deployment gives again
    /// what was required, acquires are granted again; lost holds stay lost.
    Refuse,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Liveness, Rule, Scope};

    #[test]
    fn a_refusal_says_everything_that_is_missing() {
        let found = Guarantees::of("e", "one node", Scope::Host, Liveness::Lease)
            .with_assumption(Assumption::ClockRates)
            .with_capability(Capability::Fifo)
            .with_rule(Rule::new("e.disk", Level::Leased).refused("nothing is kept", "set durable = true"));
        assert!(Requirements::default().check(&found).is_ok());
        let wanted = Requirements::default()
            .with_level(Level::Fenced)
            .with_capability(Capability::Fifo)
            .with_capability(Capability::PushLoss)
            .with_forbidden(Assumption::ClockRates)
            .with_forbidden(Assumption::ServerClock);
        let e = wanted.check(&found).unwrap_err();
        assert_eq!((e.kind(), e.engine()), (ErrorKind::Refused, Some("e")));
        for part in ["`fenced` was required", "one node", "set durable = true", "`push_loss` was required", "`T1`"] {
            assert!(e.message().contains(part), "{part}: {e}");
        }
        assert!(!e.message().contains("`T2`"), "{e}");
    }
}
