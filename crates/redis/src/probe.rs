//! What level a deployment supports, asked of every master.

use crate::config::{Deployment, RedisConfig};
use crate::failure::Failure;
use crate::link::Link;
use crate::store::Store;
use fencelock_core::{Assumption, Capability, Guarantees, Level, Liveness, Result, Rule, Scope};
use redis::Value;
use std::collections::BTreeMap;

/// What the masters say of themselves. Of several, what the worst says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probe {
    servers: Vec<Server>,
}

/// What one master says; `None` where it would not.
#[derive(Clone, Debug, Default)]
struct Server {
    info: BTreeMap<String, String>,
    appendfsync: Option<String>,
    no_fsync_on_rewrite: Option<String>,
}

impl Probe {
    pub(crate) async fn run(store: &Store) -> std::result::Result<Self, Failure> {
        let mut servers = Vec::new();
        for master in store.router.masters(store.deadline()).await? {
            servers.push(Server::ask(&master, store).await?);
        }
        Ok(Self { servers })
    }

    /// Before the first answer.
    pub(crate) fn nothing_known() -> Guarantees {
        Guarantees::of("redis", "not probed yet", Scope::Network, Liveness::Lease)
            .with_rule(Rule::new("redis.probe", Level::Advisory))
    }

    /// With what the configuration attests.
    pub(crate) fn guarantees(&self, config: &RedisConfig) -> Result<Guarantees> {
        self.found(config).attest(&config.attested)
    }

    /// The same after a reconnect.
    pub(crate) fn guarantees_again(&self, config: &RedisConfig) -> Guarantees {
        self.found(config).attest_again(&config.attested)
    }

    fn found(&self, config: &RedisConfig) -> Guarantees {
        let kind = match config.deployment {
            Deployment::Standalone(_) if self.replicas() > 0 => "with replicas",
            Deployment::Standalone(_) => "standalone",
            Deployment::Sentinel { .. } => "Sentinel",
            Deployment::Cluster(_) => "Cluster",
        };
        let first = self.servers.first();
        let version = first.and_then(|server| server.info("redis_version")).unwrap_or("of unknown version");
        let deployment =
            format!("Redis {version}, {kind}, {}, {}", self.persistence_in_words(), self.policy_in_words());
        let mut found = Guarantees::of("redis", deployment, Scope::Network, Liveness::Lease)
            .with_capability(Capability::NotifiedWaiting)
            .with_rule(self.eviction())
            .with_rule(self.failover(config))
            .with_rule(self.persistence())
            .with_rule(self.rewrite())
            .with_rule(Rule::new("redis.fsync", Level::Leased).assumed("the disk keeps what it acknowledged (T4)"))
            .with_rule(
                Rule::new("redis.tokens", Level::Fenced)
                    .proved("the counter that tokens come from is written in one step with the grant"),
            )
            .with_rule(
                Rule::new("redis.one_server", Level::Replicated)
                    .refused("a lock is kept by one server", "use etcd, ZooKeeper or Redlock"),
            );
        for assumption in
            [Assumption::ClockRates, Assumption::ServerClock, Assumption::HolderClock, Assumption::ServerMemory]
        {
            found = found.with_assumption(assumption);
        }
        found
    }

    fn all(&self, what: impl Fn(&Server) -> Option<bool>) -> Option<bool> {
        let answers: Vec<_> = self.servers.iter().map(what).collect();
        match answers.as_slice() {
            [] => None,
            answers if answers.contains(&Some(false)) => Some(false),
            answers if answers.contains(&None) => None,
            _ => Some(true),
        }
    }

    fn replicas(&self) -> u32 {
        self.servers.iter().filter_map(|server| server.info("connected_slaves")?.parse::<u32>().ok()).sum()
    }

    /// What evicts, evicts held locks while the server is in good health.
    fn eviction(&self) -> Rule {
        let rule = Rule::new("redis.eviction", Level::Advisory).attestable();
        match self.all(Server::keeps_all) {
            Some(true) => rule.proved("nothing is evicted"),
            Some(false) => rule.refused(
                format!("{}: held locks are evicted when memory is short", self.policy_in_words()),
                "set maxmemory-policy noeviction",
            ),
            None => rule.unknown("INFO does not show the eviction policy"),
        }
    }

    fn persistence(&self) -> Rule {
        let rule = Rule::new("redis.persistence", Level::Leased).attestable();
        match self.all(Server::is_durable) {
            Some(true) => rule.proved("every write is on disk before it is answered"),
            Some(false) => rule.refused(
                format!("{}: a restart forgets locks that were granted", self.persistence_in_words()),
                "set appendonly yes and appendfsync always",
            ),
            None => rule.unknown("CONFIG GET appendfsync is not allowed"),
        }
    }

    fn rewrite(&self) -> Rule {
        let rule = Rule::new("redis.rewrite", Level::Leased).attestable();
        match self.all(|server| Some(server.no_fsync_on_rewrite.as_deref()? == "no")) {
            Some(true) => rule.proved("the log is synced while it is rewritten too"),
            Some(false) => {
                rule.refused("the log is not synced while it is being rewritten", "set no-appendfsync-on-rewrite no")
            }
            None => rule.unknown("CONFIG GET no-appendfsync-on-rewrite is not allowed"),
        }
    }

    fn failover(&self, config: &RedisConfig) -> Rule {
        let rule = Rule::new("redis.failover", Level::Leased);
        let reason = "replication is asynchronous: a replica that is promoted may not have a lock that was granted";
        match config.deployment {
            Deployment::Sentinel { .. } | Deployment::Cluster(_) => {
                rule.refused(reason, "use one server without fail-over, etcd, ZooKeeper or Redlock")
            }
            Deployment::Standalone(_) if self.replicas() > 0 => {
                rule.refused(reason, "remove the replicas, or never promote one while locks are held").attestable()
            }
            Deployment::Standalone(_)
                if self.servers.iter().all(|server| server.info("connected_slaves").is_some()) =>
            {
                rule.proved("there is no replica that could be promoted")
            }
            Deployment::Standalone(_) => rule.unknown("INFO does not show the replicas").attestable(),
        }
    }

    fn persistence_in_words(&self) -> String {
        let Some(server) =
            self.servers.iter().find(|server| server.is_durable() != Some(true)).or(self.servers.first())
        else {
            return "unknown persistence".to_owned();
        };
        match (server.info("aof_enabled"), server.appendfsync.as_deref()) {
            (Some("1"), Some(when)) => format!("AOF {when}"),
            (Some("1"), None) => "AOF".to_owned(),
            (Some(_), _) => "no AOF".to_owned(),
            (None, _) => "unknown persistence".to_owned(),
        }
    }

    fn policy_in_words(&self) -> String {
        let worst = self.servers.iter().find(|server| server.keeps_all() != Some(true)).or(self.servers.first());
        worst.and_then(|server| server.info("maxmemory_policy")).unwrap_or("unknown eviction").to_owned()
    }
}

impl Server {
    async fn ask(link: &Link, store: &Store) -> std::result::Result<Self, Failure> {
        // What keeps us from connecting is a failure; what a server will not tell is not.
        link.open(store.deadline()).await?;
        let text = async |words: &[&str]| {
            let mut command = redis::Cmd::new();
            for word in words {
                command.arg(*word);
            }
            link.call(&command, store.deadline()).await
        };
        let mut info = BTreeMap::new();
        for section in ["server", "memory", "persistence", "replication"] {
            match text(&["INFO", section]).await {
                Ok(answer) => info.extend(lines(&answer)),
                Err(failure) if failure.is_refusal() => {}
                Err(failure) => return Err(failure),
            }
        }
        let setting = async |name: &'static str| match text(&["CONFIG", "GET", name]).await {
            Ok(answer) => {
                Ok(redis::from_redis_value::<BTreeMap<String, String>>(answer).unwrap_or_default().remove(name))
            }
            // Forbidden, renamed or not there, as on many a rented server.
            Err(failure) if failure.is_refusal() => Ok(None),
            Err(failure) => Err(failure),
        };
        Ok(Self {
            info,
            appendfsync: setting("appendfsync").await?,
            no_fsync_on_rewrite: setting("no-appendfsync-on-rewrite").await?,
        })
    }

    fn info(&self, key: &str) -> Option<&str> {
        self.info.get(key).map(String::as_str)
    }

    fn keeps_all(&self) -> Option<bool> {
        Some(self.info("maxmemory_policy")? == "noeviction" || self.info("maxmemory") == Some("0"))
    }

    fn is_durable(&self) -> Option<bool> {
        if self.info("aof_enabled")? != "1" {
            return Some(false);
        }
        Some(self.appendfsync.as_deref()? == "always")
    }
}

/// `key:value` in each line.
fn lines(answer: &Value) -> Vec<(String, String)> {
    let text = match answer {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::VerbatimString { text, .. } => text.clone(),
        _ => return Vec::new(),
    };
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(key, value)| (key.to_owned(), value.trim().to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock_core::RuleOutcome;

    fn server(info: &[(&str, &str)], fsync: Option<&str>) -> Server {
        let mut all: BTreeMap<String, String> = [
            ("redis_version", "7"),
            ("maxmemory", "0"),
            ("maxmemory_policy", "noeviction"),
            ("connected_slaves", "0"),
            ("aof_enabled", "1"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
        all.extend(info.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        Server { info: all, appendfsync: fsync.map(str::to_owned), no_fsync_on_rewrite: Some("no".to_owned()) }
    }

    fn found(servers: &[Server], config: &RedisConfig) -> Guarantees {
        Probe { servers: servers.to_vec() }.guarantees(config).unwrap()
    }

    #[test]
    fn the_level_follows_from_what_was_found() {
        let one = RedisConfig::standalone("h", 1);
        let level = |server: Server| found(&[server], &one).level();
        assert_eq!(level(server(&[], Some("always"))), Some(Level::Fenced));
        assert_eq!(level(server(&[], Some("everysec"))), Some(Level::Advisory));
        assert_eq!(level(server(&[("aof_enabled", "0")], None)), Some(Level::Advisory));
        assert_eq!(level(server(&[("connected_slaves", "1")], Some("always"))), Some(Level::Advisory));
        let full = [("maxmemory", "9"), ("maxmemory_policy", "allkeys-lru")];
        assert_eq!(level(server(&full, Some("always"))), None);
        assert_eq!(
            level(server(&full[1..], Some("always"))),
            Some(Level::Fenced),
            "without a limit nothing is evicted"
        );
    }

    #[test]
    fn fail_over_lowers_the_level_and_cannot_be_attested_away() {
        for config in [RedisConfig::sentinel([("h", 1)], "m"), RedisConfig::cluster([("h", 1)])] {
            assert_eq!(found(&[server(&[], Some("always"))], &config).level(), Some(Level::Advisory));
            let probe = Probe { servers: vec![server(&[], Some("always"))] };
            assert!(probe.guarantees(&config.with_attested(["redis.failover"])).is_err());
        }
    }

    #[test]
    fn of_several_the_worst_counts_and_what_is_hidden_can_be_attested() {
        let config = RedisConfig::standalone("h", 1);
        let mixed = [server(&[], Some("always")), server(&[], Some("everysec"))];
        assert!(found(&mixed, &config).rule_is("redis.persistence", RuleOutcome::Refused));
        let hidden = [server(&[], None)];
        assert!(found(&hidden, &config).rule_is("redis.persistence", RuleOutcome::Unknown));
        let attested = found(&hidden, &config.with_attested(["redis.persistence"]));
        assert_eq!(attested.level(), Some(Level::Fenced));
    }
}
