//! What level a deployment supports, asked of every master.

use crate::config::{Deployment, RedisConfig};
use crate::failure::Failure;
use crate::link::{Link, failed};
use crate::store::Store;
use fencelock_core::{Assumption, Capability, ErrorKind, Guarantees, Level, Liveness, Result, Rule, Scope};
use redis::Value;
use std::collections::BTreeMap;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// What every Sentinel listens to on the servers that it watches.
/// (<https://redis.io/docs/latest/operate/oss_and_stack/management/sentinel/>)
const SENTINELS: &str = "__sentinel__:hello";
/// What is asked, and in which order.
const INFO: [&str; 4] = ["server", "memory", "persistence", "replication"];
const SETTINGS: [&str; 2] = ["appendfsync", "no-appendfsync-on-rewrite"];

/// What the masters say of themselves. Of several, what the worst says. Without any, nothing is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probe {
    servers: Vec<Server>,
    whole: bool,
}

/// What one master says; `None` where it would not, or was not there to say it.
#[derive(Clone, Debug, Default)]
struct Server {
    info: BTreeMap<String, String>,
    appendfsync: Option<String>,
    no_fsync_on_rewrite: Option<String>,
    sentinels: Option<i64>,
}

impl Probe {
    /// Asks every master at once, for no longer than opening a connection and one request may take.
    pub(crate) async fn run(store: &Store) -> std::result::Result<Self, Failure> {
        let deadline = Instant::now() + store.config.connect_timeout + store.config.request_timeout;
        let mut asked = JoinSet::new();
        for master in store.router.masters(deadline).await? {
            asked.spawn(async move { Server::ask(&master, deadline).await });
        }
        let mut found = Self { servers: Vec::new(), whole: true };
        let mut missing: Option<Failure> = None;
        while let Some(answer) = asked.join_next().await {
            match answer.unwrap_or_else(|_| Err(Failure::not_reached("the probe was given up"))) {
                Ok(server) => found.servers.push(server),
                // One node of a Cluster that is away keeps nobody from the others.
                Err(failure) if failure.error.kind() == ErrorKind::Unavailable => missing = Some(failure),
                Err(failure) => return Err(failure),
            }
        }
        if let Some(failure) = missing {
            if found.servers.is_empty() {
                return Err(failure);
            }
            found.servers.push(Server::default());
            found.whole = false;
        }
        Ok(found)
    }

    /// Whether every server has answered.
    pub(crate) fn is_whole(&self) -> bool {
        self.whole
    }

    /// That it is what the configuration takes it for.
    pub(crate) fn check(&self, config: &RedisConfig) -> Result<()> {
        match config.deployment {
            Deployment::Standalone(_) | Deployment::Sentinel { .. } if self.is_cluster() => {
                Err(Failure::in_a_cluster().into())
            }
            _ => Ok(()),
        }
    }

    fn is_cluster(&self) -> bool {
        self.servers.iter().any(|server| server.info("redis_mode") == Some("cluster"))
    }

    /// Whether something is there that is promoted, or promotes.
    pub(crate) fn sees_replication(&self) -> bool {
        self.replicas() > 0 || self.sentinels() > 0 || self.is_cluster()
    }

    fn sentinels(&self) -> i64 {
        self.servers.iter().filter_map(|server| server.sentinels).sum()
    }

    /// Before the first answer.
    pub(crate) fn nothing_known() -> Guarantees {
        Guarantees::of("redis", "not probed yet", Scope::Network, Liveness::Lease)
            .with_capability(Capability::Cohort)
            .with_rule(Rule::new("redis.probe", Level::Advisory))
    }

    /// What that gives; `seen` if replicas or Sentinels were there at an earlier time. Nothing is attested yet.
    pub(crate) fn guarantees(&self, config: &RedisConfig, seen: bool) -> Guarantees {
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
            .with_capability(Capability::Cohort)
            .with_rule(self.eviction())
            .with_rule(self.failover(config, seen))
            .with_rule(self.persistence())
            .with_rule(self.rewrite())
            .with_rule(Rule::new("redis.fsync", Level::Leased).assumed("the disk keeps what it acknowledged (T4)"))
            .with_rule(
                Rule::new("redis.tokens", Level::Fenced)
                    .proved("the counter that tokens come from is written in one step with the grant"),
            )
            .with_rule(
                Rule::new("redis.one_server", Level::Replicated)
                    .refused("a lock is kept by one server", "use etcd or ZooKeeper"),
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
        let rule = Rule::new("redis.eviction", Level::Advisory);
        match self.all(Server::keeps_all) {
            Some(true) => rule.proved("nothing is evicted"),
            Some(false) => rule.refused(
                format!("{}: held locks are evicted when memory is short", self.policy_in_words()),
                "set maxmemory-policy noeviction",
            ),
            None => rule.unknown("INFO does not show the eviction policy").attestable(),
        }
    }

    fn persistence(&self) -> Rule {
        let rule = Rule::new("redis.persistence", Level::Leased);
        match self.all(Server::is_durable) {
            Some(true) => rule.proved("every write is on disk before it is answered"),
            Some(false) => rule.refused(
                format!("{}: a restart forgets locks that were granted", self.persistence_in_words()),
                "set appendonly yes and appendfsync always",
            ),
            None => rule.unknown("INFO or CONFIG GET appendfsync does not show it").attestable(),
        }
    }

    fn rewrite(&self) -> Rule {
        let rule = Rule::new("redis.rewrite", Level::Leased);
        match self.all(|server| Some(server.no_fsync_on_rewrite.as_deref()? == "no")) {
            Some(true) => rule.proved("the log is synced while it is rewritten too"),
            Some(false) => {
                rule.refused("the log is not synced while it is being rewritten", "set no-appendfsync-on-rewrite no")
            }
            None => rule.unknown("CONFIG GET no-appendfsync-on-rewrite does not show it").attestable(),
        }
    }

    fn failover(&self, config: &RedisConfig, seen: bool) -> Rule {
        let rule = Rule::new("redis.failover", Level::Leased);
        let because = "replication is asynchronous: a replica that is promoted may not have a lock that was granted";
        let refused = |rule: Rule, what: &str, fix: &'static str| {
            let separator = if what.is_empty() { "" } else { "; " };
            rule.refused(format!("{what}{separator}{because}"), fix)
        };
        let other = "use one server without fail-over, etcd, ZooKeeper or Redlock";
        if !matches!(config.deployment, Deployment::Standalone(_)) || self.is_cluster() {
            return refused(rule, "", other);
        }
        if self.replicas() > 0 {
            let what = format!("replicas connected: {}", self.replicas());
            return refused(rule, &what, "remove the replicas, or never promote one while locks are held");
        }
        if self.sentinels() > 0 {
            return refused(rule, "Sentinels watch it", other);
        }
        if seen {
            return refused(rule, "replicas or Sentinels were there since this client connected", other);
        }
        if self.all(|server| Some(server.info("connected_slaves").is_some() && server.sentinels.is_some()))
            != Some(true)
        {
            return rule.unknown("INFO or PUBSUB NUMSUB does not show replicas and Sentinels").attestable();
        }
        let trace = |server: &Server| {
            let promoted = server.info("master_replid2").is_some_and(|id| id.bytes().any(|digit| digit != b'0'));
            server.info("repl_backlog_active") == Some("1") || promoted
        };
        if self.servers.iter().any(trace) {
            let why = "no replica is connected, but there has been one: it may come back, and be promoted";
            return rule.unknown(why).attestable();
        }
        rule.proved("no replica is connected or was within `repl-backlog-ttl`, and no Sentinel watches")
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
    async fn ask(link: &Link, deadline: Instant) -> std::result::Result<Self, Failure> {
        // What keeps us from connecting is a failure; what a server will not tell is not.
        link.open(deadline).await?;
        let mut questions = redis::pipe();
        for section in INFO {
            questions.cmd("INFO").arg(section);
        }
        for name in SETTINGS {
            questions.cmd("CONFIG").arg("GET").arg(name);
        }
        questions.cmd("PUBSUB").arg("NUMSUB").arg(SENTINELS);
        let mut answers = link.call_all(&questions, deadline).await?.into_iter();
        // Forbidden, renamed or not there, as on many a rented server.
        let mut next = || match failed(answers.next().unwrap_or(Value::Nil)) {
            Ok(answer) => Ok(answer),
            Err(failure) if failure.is_refusal() => Ok(Value::Nil),
            Err(failure) => Err(failure),
        };
        let mut info = BTreeMap::new();
        for _ in INFO {
            info.extend(lines(&next()?));
        }
        let mut settings = BTreeMap::new();
        for _ in SETTINGS {
            settings.extend(redis::from_redis_value::<BTreeMap<String, String>>(next()?).unwrap_or_default());
        }
        let [appendfsync, no_fsync_on_rewrite] = SETTINGS.map(|name| settings.remove(name));
        let sentinels = redis::from_redis_value::<BTreeMap<String, i64>>(next()?).unwrap_or_default();
        let sentinels = sentinels.get(SENTINELS).copied();
        Ok(Self { info, appendfsync, no_fsync_on_rewrite, sentinels })
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
        let no_fsync_on_rewrite = Some("no".to_owned());
        Server { info: all, appendfsync: fsync.map(str::to_owned), no_fsync_on_rewrite, sentinels: Some(0) }
    }

    fn found(servers: &[Server], config: &RedisConfig) -> Guarantees {
        Probe { servers: servers.to_vec(), whole: true }.guarantees(config, false)
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
            let found = found(&[server(&[], Some("always"))], &config);
            assert_eq!(found.attest(["redis.failover"]).unwrap_err().kind(), ErrorKind::Refused);
        }
    }

    #[test]
    fn whatever_could_be_promoted_is_seen() {
        let one = RedisConfig::standalone("h", 1);
        let rule = |server: Server, seen: bool| {
            let found = Probe { servers: vec![server], whole: true }.guarantees(&one, seen);
            let rule = found.rules().iter().find(|rule| rule.id() == "redis.failover").unwrap();
            (rule.outcome(), rule.is_attestable())
        };
        let always = Some("always");
        assert_eq!(rule(server(&[], always), false), (RuleOutcome::Proved, false));
        assert_eq!(rule(server(&[], always), true), (RuleOutcome::Refused, false), "seen before");
        for refused in [("connected_slaves", "1"), ("redis_mode", "cluster")] {
            assert_eq!(rule(server(&[refused], always), false), (RuleOutcome::Refused, false), "{refused:?}");
        }
        let watched = Server { sentinels: Some(3), ..server(&[], always) };
        assert_eq!(rule(watched, false), (RuleOutcome::Refused, false));
        for hint in [("repl_backlog_active", "1"), ("master_replid2", "00a0")] {
            assert_eq!(rule(server(&[hint], always), false), (RuleOutcome::Unknown, true), "{hint:?}");
        }
        let silent = Server { sentinels: None, ..server(&[], always) };
        assert_eq!(rule(silent, false), (RuleOutcome::Unknown, true));
    }

    #[test]
    fn without_an_answer_nothing_is_proved_that_servers_say() {
        for config in [RedisConfig::standalone("h", 1), RedisConfig::cluster([("h", 1)])] {
            let found = Probe::default().guarantees(&config, false);
            assert_eq!(found.level(), None);
            for id in ["redis.eviction", "redis.persistence", "redis.rewrite"] {
                assert!(found.rule_is(id, RuleOutcome::Unknown), "{id}");
            }
            assert!(!found.rule_is("redis.failover", RuleOutcome::Proved));
        }
    }

    #[test]
    fn of_several_the_worst_counts_and_what_is_hidden_can_be_attested() {
        let config = RedisConfig::standalone("h", 1);
        let mixed = [server(&[], Some("always")), server(&[], Some("everysec"))];
        assert!(found(&mixed, &config).rule_is("redis.persistence", RuleOutcome::Refused));
        let hidden = [server(&[], None)];
        assert!(found(&hidden, &config).rule_is("redis.persistence", RuleOutcome::Unknown));
        let attested = found(&hidden, &config).attest(["redis.persistence"]).unwrap();
        assert_eq!(attested.level(), Some(Level::Fenced));
        let disproved = found(&mixed, &config).attest(["redis.persistence"]).unwrap_err();
        assert!(disproved.message().contains("everysec"), "{disproved}");
    }
}
