//! What level a deployment supports.

use crate::config::ZooKeeperConfig;
use crate::members::Members;
use crate::session::Session;
use crate::tempo::is_long_enough;
use fencelock_core::{Assumption, Capability, Guarantees, Level, Liveness, Rule, Scope};
use std::time::Duration;

/// What was found.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    session: Duration,
    /// How long a server that is cut off may go on answering; `None` if not all of them tell.
    lag: Option<Duration>,
    standalone: bool,
    /// How many servers vote; `None` if they would not tell.
    voters: Option<usize>,
}

impl Probe {
    /// What is known before there is a session.
    pub(crate) fn unasked(session: Duration, members: &Members, config: &ZooKeeperConfig) -> Self {
        let standalone = members.is_standalone();
        Self { session, lag: members.lag(config), standalone, voters: standalone.then_some(1) }
    }

    pub(crate) async fn run(session: &Session, members: &Members, config: &ZooKeeperConfig) -> Self {
        let mut probe = Self::unasked(session.tempo.session.min(members.session()), members, config);
        if !probe.standalone
            && let Ok((ensemble, _)) = session.call(session.client.get_config()).await
        {
            probe.voters = count_voters(&String::from_utf8_lossy(&ensemble));
        }
        probe
    }

    pub(crate) fn guarantees(&self) -> Guarantees {
        let servers = match (self.standalone, self.voters) {
            (true, _) => "standalone".to_owned(),
            (false, Some(1)) => "1 voter".to_owned(),
            (false, Some(voters)) => format!("{voters} voters"),
            (false, None) => "an ensemble of unknown size".to_owned(),
        };
        let deployment = format!("ZooKeeper, {servers}, session {:?}", self.session);
        Guarantees::of("zookeeper", deployment, Scope::Network, Liveness::Session)
            .with_assumption(Assumption::ClockRates)
            .with_assumption(Assumption::HolderClock)
            .with_assumption(Assumption::ServerMemory)
            .with_capability(Capability::Fifo)
            .with_capability(Capability::NotifiedWaiting)
            .with_capability(Capability::PushLoss)
            .with_capability(Capability::InStoreGuard)
            .with_rule(self.session())
            .with_rule(Rule::new("zookeeper.disk", Level::Fenced).assumed(
                "`forceSync` is taken to be on, as it is by default, and the disks to keep what they synced: no server tells",
            ))
            .with_rule(self.voters())
    }

    /// Two clients must not both be believed when a follower is cut off from its leader.
    fn session(&self) -> Rule {
        let (rule, session) = (Rule::new("zookeeper.session", Level::Leased), self.session);
        if self.standalone {
            return rule.proved("a server that is alone is not cut off from a leader");
        }
        let Some(lag) = self.lag else {
            return rule.unknown(
                "not every server tells `tickTime` and `syncLimit`, which say how long one that is cut off goes on \
                 answering: allow the four-letter word `conf` (`4lw.commands.whitelist`), or set `tick_time` and `sync_limit`",
            );
        };
        let least = lag * 4 / 3;
        if is_long_enough(session, lag) {
            let left = session.saturating_sub(lag);
            rule.proved(format!(
                "of the session of {session:?} a holder believes {left:?}; a server that is cut off may answer for {lag:?}"
            ))
        } else {
            rule.refused(
                format!("a server that is cut off from its leader may answer for {lag:?}, and the session is {session:?}"),
                format!("set `session` to {least:?} or more (the servers' `maxSessionTimeout` bounds it), or lower their `syncLimit`"),
            )
        }
    }

    fn voters(&self) -> Rule {
        let rule = Rule::new("zookeeper.voters", Level::Replicated);
        match self.voters {
            Some(voters @ 3..) => rule.proved(format!("{voters} servers vote; {} may be lost", (voters - 1) / 2)),
            Some(1) => rule.refused("there is one server, and without it no lock", "run 3 or 5 servers"),
            Some(voters) => rule.refused(format!("{voters} servers vote, and none may be lost"), "run 3 or 5 servers"),
            None => rule.unknown("the servers do not tell how many of them vote").attestable(),
        }
    }
}

/// The participants in `/zookeeper/config`, lines such as `server.1=host:2888:3888:participant;0.0.0.0:2181`.
fn count_voters(config: &str) -> Option<usize> {
    let servers = config.lines().filter(|line| line.starts_with("server."));
    let voters = servers.filter(|line| !line.contains(":observer")).count();
    (voters > 0).then_some(voters)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(session: u64, lag: Option<u64>, voters: Option<usize>) -> Probe {
        let (session, lag) = (Duration::from_secs(session), lag.map(Duration::from_secs));
        Probe { session, lag, standalone: false, voters }
    }

    #[test]
    fn levels_are_those_of_the_table() {
        let level = |session, lag, voters| probe(session, lag, voters).guarantees().level();
        assert_eq!(level(30, Some(12), Some(3)), Some(Level::Replicated));
        assert_eq!(level(30, Some(12), Some(2)), Some(Level::Fenced));
        assert_eq!(level(30, Some(12), None), Some(Level::Fenced));
        assert_eq!(level(4, Some(12), Some(3)), Some(Level::Advisory));
        assert_eq!(level(30, None, Some(3)), Some(Level::Advisory));
        let alone = Probe { standalone: true, ..probe(4, Some(0), Some(1)) };
        assert_eq!(alone.guarantees().level(), Some(Level::Fenced));
    }

    #[test]
    fn refusals_say_what_to_change() {
        let e = probe(4, Some(12), Some(3)).guarantees().require(Level::Leased).unwrap_err();
        assert!(e.message().contains("12s") && e.message().contains("16s"), "{e}");
        let e = probe(30, None, Some(3)).guarantees().require(Level::Leased).unwrap_err();
        assert!(e.message().contains("sync_limit"), "{e}");
    }

    #[test]
    fn only_what_the_servers_would_not_say_can_be_attested() {
        let attest = |probe: Probe, id: &str| probe.guarantees().attest([id]);
        assert_eq!(attest(probe(30, Some(12), None), "zookeeper.voters").unwrap().level(), Some(Level::Replicated));
        attest(probe(30, Some(12), Some(1)), "zookeeper.voters").unwrap_err();
        attest(probe(30, Some(12), Some(2)), "zookeeper.voters").unwrap_err();
        attest(probe(4, Some(12), Some(3)), "zookeeper.session").unwrap_err();
        // What the margin is counted from has to be a number, and that is a setting.
        attest(probe(30, None, Some(3)), "zookeeper.session").unwrap_err();
    }

    #[test]
    fn observers_do_not_vote() {
        let config = "server.1=a:1:2:participant;0.0.0.0:3\nserver.2=b:1:2:observer\nserver.3=c:1:2\nversion=0";
        assert_eq!(count_voters(config), Some(2));
        assert_eq!(count_voters(""), None);
    }
}
