//! What level a deployment supports.

use crate::probe::Probe;
use fencelock_core::{Assumption, Capability, Guarantees, Level, Liveness, Rule, Scope};
use std::collections::BTreeSet;

impl Probe {
    /// The guarantees of what was found, with nothing attested yet.
    pub(crate) fn guarantees(&self) -> Guarantees {
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
            .with_rule(self.named())
    }

    fn deployment(&self) -> String {
        let versions = match (self.versions.values().min(), self.versions.values().max()) {
            (Some(least), Some(most)) if least != most => format!("{least} to {most}"),
            (Some(version), _) => version.to_string(),
            (None, _) => "of unknown version".to_owned(),
        };
        let voters = self.voters().map(|voters| voters.len());
        let members = match voters {
            Some(1) => ", 1 member".to_owned(),
            Some(voters) => format!(", {voters} voting members"),
            None => String::new(),
        };
        let learners = self.listed.iter().flatten().filter(|member| member.learns).count();
        let learners = if learners > 0 { format!(", {learners} learning") } else { String::new() };
        format!("etcd {versions}{members}{learners}")
    }

    /// A leader that has been replaced, and does not know it yet, must not acknowledge keepalives.
    fn lease_fixes(&self) -> Rule {
        let rule = Rule::new("etcd.lease_fixes", Level::Leased).attestable();
        if let Some(old) = self.versions.values().find(|version| !version.has_lease_fixes()) {
            let reason = format!("etcd {old} may acknowledge a keepalive of a lease that has been revoked");
            return rule.refused(reason, "run 3.4.38, 3.5.23, 3.6.5 or later");
        }
        let Some(voters) = self.voters() else {
            return rule.unknown("this user may not ask for the versions of all members");
        };
        // One that did not answer, or is not named here, may be the leader.
        let answered = voters.iter().filter(|voter| self.versions.contains_key(voter)).count();
        if answered < voters.len() {
            return rule.unknown(format!("{answered} of {} members said which version they are", voters.len()));
        }
        rule.proved(format!("every member ({answered}) has the fixes"))
    }

    fn members(&self) -> Rule {
        let rule = Rule::new("etcd.members", Level::Replicated);
        match self.voters().map(|voters| voters.len()) {
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
    fn named(&self) -> Rule {
        let rule = Rule::new("etcd.endpoints", Level::Replicated);
        let Some(voters) = self.voters() else {
            return rule.unknown("this user may not list the members").attestable();
        };
        let mut named = BTreeSet::new();
        for endpoint in &self.endpoints {
            let listed = self.listed_at(&endpoint.address);
            named.extend(endpoint.member);
            // One that has not answered yet is at least written down.
            if let ([member], None) = (listed.as_slice(), endpoint.member) {
                named.insert(*member);
            }
        }
        let (named, voters) = (named.intersection(&voters).count(), voters.len());
        let seen = format!("{named} of {voters} voting members are named by {} endpoint(s)", self.endpoints.len());
        let fix = "name at least a majority of the members";
        if named > voters / 2 {
            rule.proved(seen)
        } else if self.endpoints.iter().all(|endpoint| self.listed_at(&endpoint.address).len() == 1) {
            rule.refused(seen, fix)
        } else {
            // The name may be that of a balancer.
            let why = format!(
                "{seen}; whether a name leads to the others too cannot be seen: {fix}, or attest that one does"
            );
            rule.unknown(why).attestable()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::{Endpoint, Listed};
    use crate::version::Version;
    use fencelock_core::{ErrorKind, RuleOutcome};

    fn probe(version: &str, voters: u64) -> Probe {
        let address = |id: u64| format!("10.0.0.{id}:2379");
        let listed = |id| Listed { id, learns: false, addresses: vec![address(id)] };
        Probe {
            endpoints: (1..=voters).map(|id| Endpoint::new(&address(id), Some(id))).collect(),
            versions: (1..=voters).map(|id| (id, Version::parse(version))).collect(),
            listed: Some((1..=voters).map(listed).collect()),
        }
    }

    fn at(probe: Probe, endpoints: &[(&str, Option<u64>)]) -> Probe {
        let endpoints = endpoints.iter().map(|(address, id)| Endpoint::new(address, *id)).collect();
        Probe { endpoints, ..probe }
    }

    fn named(probe: &Probe) -> RuleOutcome {
        probe.named().outcome()
    }

    fn level(probe: &Probe) -> Option<Level> {
        probe.guarantees().level()
    }

    #[test]
    fn the_level_follows_from_version_and_members() {
        assert_eq!(level(&probe("3.5.30", 3)), Some(Level::Replicated));
        assert_eq!(level(&probe("3.5.30", 1)), Some(Level::Fenced));
        assert_eq!(level(&probe("3.5.30", 2)), Some(Level::Fenced));
        assert_eq!(level(&probe("3.4.23", 3)), Some(Level::Advisory));
        assert_eq!(level(&probe("3.6.5-rc.1", 3)), Some(Level::Advisory));
        // Members that are not named may be older.
        assert_eq!(level(&Probe { listed: None, ..probe("3.6.5", 3) }), Some(Level::Advisory));
        let mut mixed = probe("3.5.30", 3);
        mixed.versions.insert(2, Version::parse("3.4.23"));
        assert_eq!(level(&mixed), Some(Level::Advisory));
        assert_eq!(mixed.deployment(), "etcd 3.4.23 to 3.5.30, 3 voting members");
        let mut silent = probe("3.5.30", 3);
        silent.versions.remove(&2);
        assert!(silent.guarantees().rule_is("etcd.lease_fixes", RuleOutcome::Unknown));
    }

    #[test]
    fn members_are_counted_and_not_names() {
        let three = || probe("3.5.30", 3);
        assert_eq!(named(&three()), RuleOutcome::Proved);
        // One member by three names.
        let aliases = [("10.0.0.1:2379", Some(1)), ("one:2379", Some(1)), ("localhost:2379", Some(1))];
        assert_eq!(named(&at(three(), &aliases)), RuleOutcome::Unknown);
        assert_eq!(named(&at(three(), &aliases[..1])), RuleOutcome::Refused, "it says itself that it is one member");
        let two = [("10.0.0.1:2379", Some(1)), ("other:2379", Some(2))];
        assert_eq!(named(&at(three(), &two)), RuleOutcome::Proved);
        // A member that is down and listed is named all the same; what nobody knows is not.
        let down = [("10.0.0.1:2379", Some(1)), ("10.0.0.2:2379", None)];
        assert_eq!(named(&at(three(), &down)), RuleOutcome::Proved);
        assert_eq!(named(&at(three(), &[("10.0.0.1:2379", Some(1)), ("gone:2379", None)])), RuleOutcome::Unknown);
        // Learners do not count.
        let mut learning = three();
        for member in learning.listed.as_mut().unwrap() {
            member.learns = member.id == 3;
        }
        learning.listed.as_mut().unwrap().push(Listed {
            id: 4,
            learns: false,
            addresses: vec!["10.0.0.4:2379".into()],
        });
        let with_learner = [("10.0.0.1:2379", Some(1)), ("10.0.0.3:2379", Some(3))];
        assert_eq!(named(&at(learning, &with_learner)), RuleOutcome::Refused);
    }

    #[test]
    fn fixes_can_be_attested_and_what_was_disproved_cannot() {
        let attest = |probe: &Probe, id: &str| probe.guarantees().attest([id]);
        let found = attest(&probe("3.4.23", 1), "etcd.lease_fixes").unwrap();
        assert!(found.rule_is("etcd.lease_fixes", RuleOutcome::Attested));
        assert_eq!(found.level(), Some(Level::Fenced));
        assert_eq!(attest(&probe("3.5.30", 1), "etcd.members").unwrap_err().kind(), ErrorKind::Refused);
        let one = at(probe("3.5.30", 3), &[("10.0.0.1:2379", Some(1))]);
        assert_eq!(attest(&one, "etcd.endpoints").unwrap_err().kind(), ErrorKind::Refused);
        let balanced = at(probe("3.5.30", 3), &[("etcd.example:2379", Some(1))]);
        assert_eq!(attest(&balanced, "etcd.endpoints").unwrap().level(), Some(Level::Replicated));
    }
}
