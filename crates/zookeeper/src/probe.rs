//! What level a deployment supports.

use crate::config::ZooKeeperConfig;
use crate::session::Session;
use crate::tempo::{Ticks, is_long_enough};
use fencelock_core::{Assumption, Capability, Guarantees, Level, Liveness, Result, Rule, Scope};
use std::time::Duration;

/// What was found.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    session: Duration,
    ticks: Ticks,
    /// How many servers vote; `None` if they would not tell.
    voters: Option<usize>,
}

impl Probe {
    pub(crate) async fn run(session: &Session, ticks: &Ticks) -> Self {
        let voters = match (ticks.standalone, session.call(session.client.get_config()).await) {
            (true, _) => Some(1),
            (false, Ok((config, _))) => count_voters(&String::from_utf8_lossy(&config)),
            (false, Err(_)) => None,
        };
        Self { session: session.tempo.session, ticks: *ticks, voters }
    }

    pub(crate) fn guarantees(&self, config: &ZooKeeperConfig) -> Result<Guarantees> {
        let servers = match (self.ticks.standalone, self.voters) {
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
            .attest(&config.attested)
    }

    /// Two clients must not both be believed when a follower is cut off from its leader.
    fn session(&self) -> Rule {
        let (rule, session) = (Rule::new("zookeeper.session", Level::Leased), self.session);
        if self.ticks.standalone {
            return rule.proved("a server that is alone is not cut off from a leader");
        }
        let Some(lag) = self.ticks.lag() else {
            return rule.unknown(
                "the servers do not tell `tickTime` and `syncLimit`, which say how long one that is cut off goes on \
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
        let rule = Rule::new("zookeeper.voters", Level::Replicated).attestable();
        match self.voters {
            Some(voters @ 3..) => rule.proved(format!("{voters} servers vote; {} may be lost", (voters - 1) / 2)),
            Some(1) => rule.refused("there is one server, and without it no lock", "run 3 or 5 servers"),
            Some(voters) => rule.refused(format!("{voters} servers vote, and none may be lost"), "run 3 or 5 servers"),
            None => rule.unknown("the servers do not tell how many of them vote"),
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

    fn level(session: u64, lag: Option<(u64, u32)>, voters: Option<usize>) -> (Option<Level>, Guarantees) {
        let ticks = Ticks {
            tick: lag.map(|(tick, _)| Duration::from_millis(tick)),
            sync_limit: lag.map(|(_, limit)| limit),
            standalone: false,
        };
        let probe = Probe { session: Duration::from_secs(session), ticks, voters };
        let found = probe.guarantees(&ZooKeeperConfig::new([])).unwrap();
        (found.level(), found)
    }

    #[test]
    fn levels_are_those_of_the_table() {
        assert_eq!(level(30, Some((2_000, 5)), Some(3)).0, Some(Level::Replicated));
        assert_eq!(level(30, Some((2_000, 5)), Some(2)).0, Some(Level::Fenced));
        assert_eq!(level(30, Some((2_000, 5)), None).0, Some(Level::Fenced));
        assert_eq!(level(4, Some((2_000, 5)), Some(3)).0, Some(Level::Advisory));
        assert_eq!(level(30, None, Some(3)).0, Some(Level::Advisory));
        let ticks = Ticks { standalone: true, ..Ticks::default() };
        let probe = Probe { session: Duration::from_secs(4), ticks, voters: Some(1) };
        assert_eq!(probe.guarantees(&ZooKeeperConfig::new([])).unwrap().level(), Some(Level::Fenced));
    }

    #[test]
    fn refusals_say_what_to_change() {
        let (_, found) = level(4, Some((2_000, 5)), Some(3));
        let e = found.require(Level::Leased).unwrap_err();
        assert!(e.message().contains("12s") && e.message().contains("16s"), "{e}");
        let (_, found) = level(30, None, Some(3));
        let e = found.require(Level::Leased).unwrap_err();
        assert!(e.message().contains("sync_limit"), "{e}");
        let attested = ZooKeeperConfig::new([]).with_attested(["zookeeper.session"]);
        let probe = Probe { session: Duration::from_secs(4), ticks: Ticks::default(), voters: None };
        assert!(probe.guarantees(&attested).is_err(), "what the margin is counted from cannot be attested");
    }

    #[test]
    fn observers_do_not_vote() {
        let config = "server.1=a:1:2:participant;0.0.0.0:3\nserver.2=b:1:2:observer\nserver.3=c:1:2\nversion=0";
        assert_eq!(count_voters(config), Some(2));
        assert_eq!(count_voters(""), None);
    }
}
