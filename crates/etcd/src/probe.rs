//! What level a deployment supports, asked of its members.

use crate::EtcdConfig;
use crate::failure::Failure;
use crate::members::{Again, Members};
use etcd_client::Client;
use fencelock_core::{Assumption, Capability, Guarantees, Level, Liveness, Result, Rule, Scope};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Major, minor, patch.
type Version = (u32, u32, u32);

/// What was found.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    /// Of the members that answered.
    versions: BTreeSet<Version>,
    endpoints: usize,
    answered: usize,
    /// Voting members; none if the cluster would not say.
    voters: Option<usize>,
    learners: usize,
}

fn parse(version: &str) -> Version {
    let mut numbers = version.split(['.', '-', '+']).map(|part| part.parse().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    (next(), next(), next())
}

fn show((major, minor, patch): Version) -> String {
    format!("{major}.{minor}.{patch}")
}

/// Whether a leader makes sure that it leads before it acknowledges a keepalive.
fn has_lease_fixes(version: Version) -> bool {
    match version {
        (3, 4, patch) => patch >= 38,
        (3, 5, patch) => patch >= 23,
        (3, 6, patch) => patch >= 5,
        version => version >= (3, 7, 0),
    }
}

impl Probe {
    pub(crate) async fn run(members: &Arc<Members>) -> Result<Self> {
        let mut asked = JoinSet::new();
        for member in 0..members.count() {
            let members = Arc::clone(members);
            asked.spawn(async move {
                let status = |mut client: Client| async move { client.status().await };
                let limit = members.limit();
                timeout(limit, members.ask(member, None, status))
                    .await
                    .unwrap_or_else(|_| Err(Failure::timed_out(limit)))
            });
        }
        let (mut versions, mut answered, mut failure) = (BTreeSet::new(), 0, None);
        while let Some(status) = asked.join_next().await {
            match status {
                Ok(Ok(status)) => {
                    answered += 1;
                    versions.insert(parse(status.version()));
                }
                Ok(Err(e)) => failure = Some(e),
                Err(_) => {}
            }
        }
        if answered == 0 {
            return Err(failure.unwrap_or_else(|| Failure::timed_out(members.limit())).into());
        }
        let list = |mut client: Client| async move { client.member_list().await };
        let listed = match members.call(None, Again::Same, list).await {
            Ok(listed) => Some(listed),
            // Not every user may ask.
            Err(Failure::Refused(_)) => None,
            Err(failure) => return Err(failure.into()),
        };
        let learners = listed.as_ref().map_or(0, |list| list.members().iter().filter(|m| m.is_learner()).count());
        let voters = listed.as_ref().map(|list| list.members().len().saturating_sub(learners));
        Ok(Self { versions, endpoints: members.count(), answered, voters, learners })
    }

    pub(crate) fn guarantees(&self, config: &EtcdConfig) -> Result<Guarantees> {
        Guarantees::of("etcd", self.deployment(), Scope::Network, Liveness::Session)
            .with_assumption(Assumption::ClockRates)
            .with_assumption(Assumption::HolderClock)
            .with_assumption(Assumption::ServerMemory)
            .with_capability(Capability::Fifo)
            .with_capability(Capability::NotifiedWaiting)
            .with_capability(Capability::PushLoss)
            .with_capability(Capability::InStoreGuard)
            .with_rule(self.lease_fixes())
            .with_rule(Rule::new("etcd.fsync", Level::Fenced).assumed(
                "members write to disk before they acknowledge (no `--unsafe-no-fsync`), and disks keep it (T4)",
            ))
            .with_rule(self.members())
            .with_rule(self.endpoints())
            .attest(&config.attested)
    }

    fn deployment(&self) -> String {
        let versions = match (self.versions.first(), self.versions.last()) {
            (Some(least), Some(most)) if least != most => format!("{} to {}", show(*least), show(*most)),
            (Some(version), _) => show(*version),
            (None, _) => "of unknown version".to_owned(),
        };
        let members = match self.voters {
            Some(1) => ", 1 member".to_owned(),
            Some(voters) => format!(", {voters} voting members"),
            None => String::new(),
        };
        let learners = if self.learners > 0 { format!(", {} learning", self.learners) } else { String::new() };
        format!("etcd {versions}{members}{learners}")
    }

    /// A leader that has been replaced, and does not know it yet, must not acknowledge keepalives.
    fn lease_fixes(&self) -> Rule {
        let rule = Rule::new("etcd.lease_fixes", Level::Leased).attestable();
        let Self { answered, endpoints, .. } = self;
        match self.versions.iter().find(|version| !has_lease_fixes(**version)) {
            Some(old) => rule.refused(
                format!("etcd {} may acknowledge a keepalive of a lease that has been revoked", show(*old)),
                "run 3.4.38, 3.5.23, 3.6.5 or later",
            ),
            // One that did not answer, or is not named here, may be the leader.
            None if *answered < self.voters.unwrap_or(*endpoints).max(*endpoints) => rule.unknown(format!(
                "{answered} of {} members said which version they are",
                self.voters.unwrap_or(*endpoints).max(*endpoints)
            )),
            None => rule.proved(format!("every member ({answered}) has the fixes")),
        }
    }

    fn members(&self) -> Rule {
        let rule = Rule::new("etcd.members", Level::Replicated);
        match self.voters {
            Some(voters) if voters >= 3 => rule.proved(format!("{voters} voting members")),
            Some(1) => rule.refused("one member: the service is gone with it", "run three or five members"),
            Some(voters) => rule.refused(
                format!("{voters} voting members: the loss of one stops the service"),
                "run three or five members",
            ),
            None => rule.unknown("this user may not list the members").attestable(),
        }
    }

    /// A client that knows only members that may all be lost together loses the service with them.
    fn endpoints(&self) -> Rule {
        let rule = Rule::new("etcd.endpoints", Level::Replicated).attestable();
        let majority = self.voters.unwrap_or(1) / 2 + 1;
        if self.endpoints >= majority {
            rule.proved(format!("{} endpoints are configured", self.endpoints))
        } else {
            rule.refused(
                format!("{} endpoint is configured, and a minority of the members may be lost", self.endpoints),
                "name at least a majority of the members, or attest that the name leads to them all",
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock_core::RuleOutcome;

    fn probe(version: &str, voters: usize) -> Probe {
        let versions = BTreeSet::from([parse(version)]);
        Probe { versions, endpoints: voters, answered: voters, voters: Some(voters), learners: 0 }
    }

    fn config() -> EtcdConfig {
        EtcdConfig::new(["a:1"])
    }

    fn level(probe: &Probe) -> Option<Level> {
        probe.guarantees(&config()).unwrap().level()
    }

    #[test]
    fn the_level_follows_from_version_and_members() {
        assert_eq!(level(&probe("3.5.30", 3)), Some(Level::Replicated));
        assert_eq!(level(&probe("3.5.30", 1)), Some(Level::Fenced));
        assert_eq!(level(&probe("3.5.30", 2)), Some(Level::Fenced));
        assert_eq!(level(&probe("3.4.23", 3)), Some(Level::Advisory));
        assert_eq!(level(&Probe { endpoints: 1, ..probe("3.6.5", 3) }), Some(Level::Fenced));
        assert_eq!(level(&Probe { voters: None, ..probe("3.6.5", 3) }), Some(Level::Fenced));
        let mixed = Probe { versions: BTreeSet::from([(3, 4, 23), (3, 5, 30)]), ..probe("3.5.30", 3) };
        assert_eq!(level(&mixed), Some(Level::Advisory));
        assert_eq!(mixed.deployment(), "etcd 3.4.23 to 3.5.30, 3 voting members");
    }

    #[test]
    fn the_fixes_are_in_the_releases_that_have_them() {
        for with in ["3.4.38", "3.5.23", "3.6.5", "3.7.0", "4.0.0", "3.6.5-rc.1"] {
            assert!(has_lease_fixes(parse(with)), "{with}");
        }
        for without in ["3.3.25", "3.4.37", "3.5.22", "3.6.4", "", "odd"] {
            assert!(!has_lease_fixes(parse(without)), "{without}");
        }
    }

    #[test]
    fn fixes_can_be_attested_and_a_single_member_cannot() {
        let attested = config().with_attested(["etcd.lease_fixes"]);
        let found = probe("3.4.23", 1).guarantees(&attested).unwrap();
        assert!(found.rule_is("etcd.lease_fixes", RuleOutcome::Attested));
        assert_eq!(found.level(), Some(Level::Fenced));
        assert!(probe("3.5.30", 1).guarantees(&config().with_attested(["etcd.members"])).is_err());
    }
}
