//! What an engine guarantees in its actual deployment, as data.

use crate::{Error, ErrorKind, Level, Result, Rule, RuleOutcome};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

/// How far the lock reaches: everyone within it is excluded, nobody beyond it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Scope {
    /// One process.
    Process,
    /// One host.
    Host,
    /// Everyone who can reach the service.
    Network,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Process => "process",
            Self::Host => "host",
            Self::Network => "network",
        })
    }
}

/// What ends a hold whose holder has vanished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Liveness {
    /// The hold's own lease runs out.
    Lease,
    /// The client's session runs out, and every hold and queue place in it; while
    /// the session is kept alive, nothing in it ends by itself.
    Session,
}

/// Something outside the engine that a promise leans on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Assumption {
    /// T1: the clocks of holder and server run at the same rate, within the drift allowed for.
    ClockRates,
    /// T2: the server's clock is not stepped.
    ServerClock,
    /// T3: the holder's clock counts suspended time and its machine is not frozen from outside.
    HolderClock,
    /// T4: the server loses nothing that it acknowledged.
    ServerMemory,
}

impl Assumption {
    /// All of them, T1 first.
    pub const ALL: [Self; 4] = [Self::ClockRates, Self::ServerClock, Self::HolderClock, Self::ServerMemory];

    /// The short name used in tables and in configuration: `T1` to `T4`.
    #[must_use]
    pub const fn id(self) -> &'static str {
        match self {
            Self::ClockRates => "T1",
            Self::ServerClock => "T2",
            Self::HolderClock => "T3",
            Self::ServerMemory => "T4",
        }
    }
}

impl fmt::Display for Assumption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ClockRates => "clock rates of holder and server agree",
            Self::ServerClock => "the server's clock is not stepped",
            Self::HolderClock => "the holder's clock counts suspended time and its machine is not frozen from outside",
            Self::ServerMemory => "the server loses nothing it acknowledged",
        })
    }
}

/// Something an engine can do beyond its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Capability {
    /// Waiters are granted the lock in the order in which they asked, across clients, unless it
    /// [passes on](crate::AcquireOptions::cohort).
    Fifo,
    /// Waiters are told of a release instead of asking again and again.
    NotifiedWaiting,
    /// A holder is told at once when the server takes its lock away.
    PushLoss,
    /// Ownership can be tested inside the caller's own transaction of the same store.
    InStoreGuard,
    /// A grant can reserve tokens, so that a lock may pass from one waiter of a client
    /// to the next without a request ([`cohort`](crate::AcquireOptions::cohort)).
    Cohort,
}

impl Capability {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Fifo, Self::NotifiedWaiting, Self::PushLoss, Self::InStoreGuard, Self::Cohort];
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fifo => "fifo",
            Self::NotifiedWaiting => "notified_waiting",
            Self::PushLoss => "push_loss",
            Self::InStoreGuard => "in_store_guard",
            Self::Cohort => "cohort",
        })
    }
}

/// What an engine guarantees in the deployment that it is connected to.
///
/// The README's table, `fencelock check`, refusals and the choice of test
/// assertions all come from values of this type.
///
/// ```
/// use fencelock_core::{Guarantees, Level, Liveness, Rule, Scope};
/// let g = Guarantees::of("mine", "one node", Scope::Network, Liveness::Lease)
///     .with_rule(Rule::new("mine.persistence", Level::Leased).refused("nothing is written to disk", "set durable = true"));
/// assert_eq!(g.level(), Some(Level::Advisory));
/// assert!(g.require(Level::Leased).is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guarantees {
    engine: Cow<'static, str>,
    deployment: Cow<'static, str>,
    scope: Scope,
    liveness: Liveness,
    assumptions: BTreeSet<Assumption>,
    capabilities: BTreeSet<Capability>,
    rules: Vec<Rule>,
}

impl Guarantees {
    /// Guarantees without a rule yet, which is `Advisory`: a higher level needs a
    /// rule that speaks for it, and none that speaks against it.
    #[must_use]
    pub fn of(
        engine: impl Into<Cow<'static, str>>,
        deployment: impl Into<Cow<'static, str>>,
        scope: Scope,
        liveness: Liveness,
    ) -> Self {
        let (engine, deployment) = (engine.into(), deployment.into());
        let (assumptions, capabilities, rules) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
        Self { engine, deployment, scope, liveness, assumptions, capabilities, rules }
    }

    /// The same, with other words for the deployment.
    #[must_use]
    pub fn with_deployment(mut self, deployment: impl Into<Cow<'static, str>>) -> Self {
        self.deployment = deployment.into();
        self
    }

    /// Adds a rule. Levels from the rule's upwards need it to hold.
    #[must_use]
    pub fn with_rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Says that the promise leans on `assumption`.
    #[must_use]
    pub fn with_assumption(mut self, assumption: Assumption) -> Self {
        self.assumptions.insert(assumption);
        self
    }

    /// Says that the engine has `capability`.
    #[must_use]
    pub fn with_capability(mut self, capability: Capability) -> Self {
        self.capabilities.insert(capability);
        self
    }

    /// Marks the rules named in `ids` as attested, where they are not proved already.
    ///
    /// For the first probe, when the configuration can still be put right;
    /// [`attest_again`](Self::attest_again) is for those after it.
    ///
    /// # Errors
    /// `InvalidConfig` if an id names no rule here, or one that nobody can attest;
    /// `Refused` if the probe found that the rule does not hold, with what it found.
    pub fn attest<S: AsRef<str>>(mut self, ids: impl IntoIterator<Item = S>) -> Result<Self> {
        for id in ids {
            let id = id.as_ref();
            let Some(rule) = self.rules.iter_mut().find(|r| r.id() == id) else {
                let known: Vec<_> = self.rules.iter().filter(|r| r.is_attestable()).map(Rule::id).collect();
                let message = match known.as_slice() {
                    [] => format!("`{id}` cannot be attested: this deployment has no rule that can"),
                    known => format!(
                        "`{id}` is no rule of this deployment; those that can be attested: {}",
                        known.join(", ")
                    ),
                };
                return Err(Error::new(ErrorKind::InvalidConfig, message).with_engine(self.engine));
            };
            rule.attest().map_err(|e| e.with_engine(self.engine.clone()))?;
        }
        Ok(self)
    }

    /// As [`attest`](Self::attest), for a deployment that was probed anew: a rule
    /// that was found not to hold stays refused, whatever was attested before.
    #[must_use]
    pub fn attest_again<S: AsRef<str>>(mut self, ids: impl IntoIterator<Item = S>) -> Self {
        for id in ids {
            if let Some(rule) = self.rules.iter_mut().find(|rule| rule.id() == id.as_ref()) {
                // An error says that the rule cannot be attested as it came out now, and it stays so.
                let _ = rule.attest();
            }
        }
        self
    }

    /// The engine's name.
    #[must_use]
    pub fn engine(&self) -> &str {
        &self.engine
    }

    /// The deployment that was found, in a few words.
    #[must_use]
    pub fn deployment(&self) -> &str {
        &self.deployment
    }

    /// How far the lock reaches.
    #[must_use]
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// What ends a hold whose holder has vanished.
    #[must_use]
    pub fn liveness(&self) -> Liveness {
        self.liveness
    }

    /// What the promise leans on, T1 first.
    pub fn assumptions(&self) -> impl Iterator<Item = Assumption> + '_ {
        self.assumptions.iter().copied()
    }

    /// What the engine can do beyond its level.
    pub fn capabilities(&self) -> impl Iterator<Item = Capability> + '_ {
        self.capabilities.iter().copied()
    }

    /// Whether the engine has `capability`.
    #[must_use]
    pub fn has(&self, capability: Capability) -> bool {
        self.capabilities.contains(&capability)
    }

    /// Every rule that was probed, attested or assumed.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The highest level of which every rule holds, and for which one speaks;
    /// `None` if not even `Advisory` is given.
    #[must_use]
    pub fn level(&self) -> Option<Level> {
        Level::ALL.into_iter().take_while(|level| self.gives(*level)).last()
    }

    fn gives(&self, level: Level) -> bool {
        let spoken_for = self.rules.iter().any(|rule| rule.level() >= level && rule.outcome().holds());
        (level == Level::Advisory || spoken_for) && self.obstacles(level).next().is_none()
    }

    /// The rules that keep this deployment from `level`.
    pub fn obstacles(&self, level: Level) -> impl Iterator<Item = &Rule> + '_ {
        self.rules.iter().filter(move |r| r.level() <= level && !r.outcome().holds())
    }

    /// The first rule that keeps it from the next level up; `None` at the highest.
    #[must_use]
    pub fn next_obstacle(&self) -> Option<&Rule> {
        let next = Level::ALL.into_iter().find(|level| self.level().is_none_or(|given| *level > given))?;
        self.obstacles(next).next()
    }

    /// Checks that the deployment gives `level`.
    ///
    /// # Errors
    /// `Refused` names what was required, what the deployment is, each rule that
    /// fails, and what to change or to attest.
    pub fn require(&self, level: Level) -> Result<()> {
        if self.gives(level) {
            return Ok(());
        }
        let mut obstacles: Vec<_> = self.obstacles(level).map(|rule| self.explain(rule)).collect();
        if obstacles.is_empty() {
            obstacles.push("the engine has no rule that speaks for it".to_owned());
        }
        let given = self.level().map_or_else(|| "no level at all".to_owned(), |l| format!("`{l}` at most"));
        let message =
            format!("`{level}` was required, and {} gives {given}: {}", self.deployment, obstacles.join("; "));
        Err(Error::new(ErrorKind::Refused, message).with_engine(self.engine.clone()))
    }

    fn explain(&self, rule: &Rule) -> String {
        let mut text = format!("{} ({}): {}", rule.id(), rule.outcome(), rule.reason());
        if let Some(fix) = rule.fix() {
            text.push_str("; ");
            text.push_str(fix);
        }
        if rule.is_attestable() {
            let or = if rule.fix().is_some() { ", or," } else { ";" };
            text.push_str(&format!("{or} if you know it to be so, attest `{}`", rule.id()));
        }
        text
    }

    /// Whether a rule of this id came out as `outcome`.
    #[must_use]
    pub fn rule_is(&self, id: &str, outcome: RuleOutcome) -> bool {
        self.rules.iter().any(|r| r.id() == id && r.outcome() == outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guarantees() -> Guarantees {
        Guarantees::of("e", "d", Scope::Host, Liveness::Lease)
            .with_rule(Rule::new("e.clock", Level::Leased).assumed("nobody can probe it"))
            .with_rule(Rule::new("e.disk", Level::Fenced).unknown("the server hides it").attestable())
            .with_rule(Rule::new("e.single", Level::Replicated).refused("one host", "use etcd"))
    }

    #[test]
    fn the_level_ends_below_the_first_rule_that_fails() {
        assert_eq!(guarantees().level(), Some(Level::Leased));
        let attested = guarantees().attest(["e.disk"]).unwrap();
        assert_eq!(attested.level(), Some(Level::Fenced));
        assert!(attested.rule_is("e.disk", RuleOutcome::Attested));
    }

    #[test]
    fn what_nobody_speaks_for_is_not_given() {
        let silent = Guarantees::of("e", "d", Scope::Host, Liveness::Lease);
        assert_eq!(silent.level(), Some(Level::Advisory));
        assert_eq!(silent.require(Level::Leased).unwrap_err().kind(), ErrorKind::Refused);
        let below = silent.with_rule(Rule::new("e.clock", Level::Fenced).proved("seen"));
        assert_eq!(below.level(), Some(Level::Fenced));
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let e = guarantees().require(Level::Fenced).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Refused);
        for part in ["`fenced` was required", "`leased` at most", "e.disk (unknown)", "attest `e.disk`"] {
            assert!(e.message().contains(part), "{part}: {e}");
        }
    }

    #[test]
    fn what_was_disproved_cannot_be_attested() {
        let e = guarantees().attest(["e.single"]).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Refused);
        for part in ["`e.single`", "one host", "use etcd", "`attest`"] {
            assert!(e.message().contains(part), "{part}: {e}");
        }
        let later = guarantees().attest_again(["e.single", "e.disk", "e.gone"]);
        assert!(later.rule_is("e.single", RuleOutcome::Refused), "found anew, it is refused and not attested");
        assert!(later.rule_is("e.disk", RuleOutcome::Attested));
    }

    #[test]
    fn only_what_can_be_attested_is() {
        let probed = guarantees().with_rule(Rule::new("e.told", Level::Fenced).unknown("it is ours to know"));
        assert_eq!(probed.attest(["e.told"]).unwrap_err().kind(), ErrorKind::InvalidConfig);
        assert!(guarantees().attest(["e.dsik"]).unwrap_err().message().contains("e.disk"));
    }
}
