//! What each node says of itself, and what level follows from all of it.

use crate::meta::Found;
use fencelock_core::{Assumption, Capability, Guarantees, Level, Liveness, Rule, Scope};
use fencelock_redis::redis::{self, Value};
use fencelock_redis::{Node, NodeFailure};
use std::collections::BTreeMap;
use std::time::Duration;

/// What one node says; nothing where it would not.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    info: BTreeMap<String, String>,
    appendfsync: Option<String>,
    no_fsync_on_rewrite: Option<String>,
    pub(crate) record: Found,
}

/// A node's place in the set: its address, and its facts if it votes.
pub(crate) type Seat = (String, Option<Facts>);

impl Facts {
    /// Asks everything in a few round trips; `record` is the key of the node's own record.
    pub(crate) async fn of(node: &Node, record: String, limit: Duration) -> Result<Self, NodeFailure> {
        let ask = async |words: &[&str]| {
            let mut command = redis::Cmd::new();
            for word in words {
                command.arg(*word);
            }
            node.call(&command, limit).await
        };
        let record = match ask(&["GET", &record]).await? {
            Value::BulkString(bytes) => Found::read(Some(&String::from_utf8_lossy(&bytes))),
            _ => Found::Nothing,
        };
        let mut info = BTreeMap::new();
        for section in ["server", "memory", "persistence", "replication"] {
            match ask(&["INFO", section]).await {
                Ok(answer) => info.extend(lines(&answer)),
                Err(failure) if failure.refused => {}
                Err(failure) => return Err(failure),
            }
        }
        let setting = async |name: &'static str| match ask(&["CONFIG", "GET", name]).await {
            Ok(answer) => {
                Ok(redis::from_redis_value::<BTreeMap<String, String>>(answer).unwrap_or_default().remove(name))
            }
            // Forbidden, renamed or not there, as on many a rented server.
            Err(failure) if failure.refused => Ok(None),
            Err(failure) => Err(failure),
        };
        let (appendfsync, no_fsync_on_rewrite) =
            (setting("appendfsync").await?, setting("no-appendfsync-on-rewrite").await?);
        Ok(Self { info, appendfsync, no_fsync_on_rewrite, record })
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.info.get(key).map(String::as_str)
    }

    pub(crate) fn run_id(&self) -> Option<&str> {
        self.get("run_id")
    }

    pub(crate) fn version(&self) -> &str {
        self.get("redis_version").unwrap_or("of unknown version")
    }

    /// The master that this node copies, if it is a replica.
    pub(crate) fn replica_of(&self) -> Option<String> {
        (self.get("role")? == "slave").then(|| {
            let (host, port) = (self.get("master_host").unwrap_or("?"), self.get("master_port").unwrap_or("?"));
            format!("{host}:{port}")
        })
    }

    fn keeps_all(&self) -> Option<bool> {
        Some(self.get("maxmemory_policy")? == "noeviction" || self.get("maxmemory") == Some("0"))
    }

    pub(crate) fn is_durable(&self) -> Option<bool> {
        if self.get("aof_enabled")? != "1" {
            return Some(false);
        }
        Some(self.appendfsync.as_deref()? == "always" && self.no_fsync_on_rewrite.as_deref()? == "no")
    }

    fn has_no_replicas(&self) -> Option<bool> {
        Some(self.get("connected_slaves")? == "0")
    }

    pub(crate) fn persistence_in_words(&self) -> String {
        match (self.get("aof_enabled"), self.appendfsync.as_deref()) {
            (Some("1"), Some(when)) => format!("AOF {when}"),
            (Some("1"), None) => "AOF".to_owned(),
            (Some(_), _) => "no AOF".to_owned(),
            (None, _) => "unknown persistence".to_owned(),
        }
    }
}

/// Before the first answer.
pub(crate) fn nothing_known() -> Guarantees {
    Guarantees::of("redlock", "not probed yet", Scope::Network, Liveness::Lease)
        .with_rule(Rule::new("redlock.probe", Level::Advisory))
}

/// What all that vote say together; of several, what the worst says.
pub(crate) fn guarantees(seats: &[Seat]) -> Guarantees {
    let facts = || seats.iter().filter_map(|(_, facts)| facts.as_ref());
    let version = facts().next().map_or("of unknown version", Facts::version);
    let worst = facts().find(|facts| facts.is_durable() != Some(true)).or_else(|| facts().next());
    let persistence = worst.map_or_else(|| "unknown persistence".to_owned(), Facts::persistence_in_words);
    let deployment = format!("Redlock, {} nodes, Redis {version}, {persistence}", seats.len());
    let mut found = Guarantees::of("redlock", deployment, Scope::Network, Liveness::Lease)
        .with_capability(Capability::NotifiedWaiting)
        .with_rule(eviction(seats))
        .with_rule(seeded(seats))
        .with_rule(independent(seats))
        .with_rule(replicas(seats));
    for rule in durability(seats, &persistence) {
        found = found.with_rule(rule);
    }
    for assumption in Assumption::ALL {
        found = found.with_assumption(assumption);
    }
    found
        .with_rule(Rule::new("redlock.fsync", Level::Leased).assumed("the disks keep what they acknowledged (T4)"))
        .with_rule(Rule::new("redlock.tokens", Level::Fenced).proved(
            "a token counts once a majority of counters has accepted it as larger than any before; no clock is part of it",
        ))
        .with_rule(Rule::new("redlock.lost_nodes", Level::Replicated).refused(
            "a node that is lost for good comes back by hand only, and locks lean on the nodes' clocks",
            "use etcd or ZooKeeper",
        ))
}

fn eviction(seats: &[Seat]) -> Rule {
    let rule = Rule::new("redlock.eviction", Level::Advisory);
    match judge(seats, Facts::keeps_all) {
        (Some(true), _) => rule.proved("nothing is evicted on any node"),
        (Some(false), who) => rule.refused(
            "held locks and counters are evicted when memory is short",
            format!("set maxmemory-policy noeviction on every node; it is not so on {who}"),
        ),
        (None, who) => rule.attestable().unknown(format!("{who} does not show the eviction policy")),
    }
}

/// Those that are not so are never let in; only a node that hides who it is could be one of them.
fn independent(seats: &[Seat]) -> Rule {
    let rule = Rule::new("redlock.independent", Level::Leased);
    match judge(seats, |facts| Some(facts.run_id().is_some() && facts.get("role").is_some()).filter(|shown| *shown)) {
        (Some(_), _) => rule.proved("no two nodes are the same server, and none is a replica"),
        (None, who) => {
            rule.attestable().unknown(format!("{who} does not show who it is: it may be another node again"))
        }
    }
}

fn replicas(seats: &[Seat]) -> Rule {
    let rule = Rule::new("redlock.replicas", Level::Leased);
    match judge(seats, Facts::has_no_replicas) {
        (Some(true), _) => rule.proved("no node has a replica that could be promoted"),
        (Some(false), who) => rule.refused(
            "a replica that is promoted may not have a lock or a token that was granted",
            format!("remove the replicas; {who} has one"),
        ),
        (None, who) => rule.attestable().unknown(format!("{who} does not show its replicas")),
    }
}

/// What a restart leaves: of locks, and of counters.
fn durability(seats: &[Seat], persistence: &str) -> [Rule; 2] {
    // That nodes come back late is the operator's to know, whatever they write.
    let restart = Rule::new("redlock.delayed_restart", Level::Leased).attestable();
    let durable = Rule::new("redlock.persistence", Level::Fenced);
    match judge(seats, Facts::is_durable) {
        (Some(true), _) => [
            restart.proved("a node that restarts still has its locks"),
            durable.proved("every write is on disk on every node before it is answered"),
        ],
        (Some(false), who) => [
            restart.refused(
                format!("{persistence}: a restart forgets locks that were granted"),
                format!(
                    "set appendonly yes and appendfsync always on every node (it is not so on {who}), or let a node that \
                     was restarted vote again only after the longest ttl"
                ),
            ),
            durable.refused(
                format!("{persistence}: a restart loses counters, or sets them back"),
                format!(
                    "set appendonly yes, appendfsync always and no-appendfsync-on-rewrite no on every node; it is not so on {who}"
                ),
            ),
        ],
        (None, who) => {
            let reason = format!("{who} does not show whether every write is synced");
            [restart.unknown(reason.clone()), durable.attestable().unknown(reason)]
        }
    }
}

/// Whether it is so on all nodes that vote; if not, or not known, on which it is not.
///
/// Who does not vote has no part in what is promised: every majority that counts here
/// is one of nodes that were asked.
fn judge(seats: &[Seat], what: impl Fn(&Facts) -> Option<bool>) -> (Option<bool>, String) {
    let mut silent = None;
    let mut any = false;
    for (address, facts) in seats {
        let Some(facts) = facts else { continue };
        any = true;
        match what(facts) {
            Some(true) => {}
            Some(false) => return (Some(false), address.clone()),
            None => silent = silent.or(Some(address.clone())),
        }
    }
    match silent {
        Some(address) => (None, address),
        None if any => (Some(true), String::new()),
        None => (None, "no node".to_owned()),
    }
}

fn seeded(seats: &[Seat]) -> Rule {
    let rule = Rule::new("redlock.seeded", Level::Advisory);
    let ready = |seat: &&Seat| seat.1.as_ref().is_some_and(|facts| facts.record.ready().is_some());
    let (count, all) = (seats.iter().filter(ready).count(), seats.len());
    let others: Vec<_> = seats.iter().filter(|seat| !ready(seat)).map(|(address, _)| address.as_str()).collect();
    if others.is_empty() {
        return rule.proved(format!("all {all} nodes have their counters"));
    }
    let others = others.join(", ");
    if count > all / 2 {
        return rule.proved(format!(
            "{count} of {all} nodes have their counters; the others do not vote until they are reached, or re-seeded: {others}"
        ));
    }
    rule.refused(
        format!("{count} of {all} nodes have their counters: no majority; not so: {others}"),
        "see `fencelock redlock status`",
    )
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
    use crate::meta::{Record, State};
    use fencelock_core::{ErrorKind, RuleOutcome};

    fn seat(info: &[(&str, &str)], fsync: Option<&str>) -> Seat {
        let mut all: BTreeMap<String, String> = [
            ("redis_version", "7"),
            ("maxmemory", "0"),
            ("maxmemory_policy", "noeviction"),
            ("run_id", "1"),
            ("role", "master"),
            ("connected_slaves", "0"),
            ("aof_enabled", "1"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
        all.extend(info.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        let record = Found::Record(Record { state: State::Ready, set: "s".into(), nodes: 3 });
        let (appendfsync, no_fsync_on_rewrite) = (fsync.map(str::to_owned), Some("no".to_owned()));
        ("h:1".to_owned(), Some(Facts { info: all, appendfsync, no_fsync_on_rewrite, record }))
    }

    fn attested(seats: &[Seat], ids: &[&str]) -> fencelock_core::Result<Guarantees> {
        guarantees(seats).attest(ids)
    }

    fn level(seats: &[Seat]) -> Option<Level> {
        guarantees(seats).level()
    }

    fn good() -> Seat {
        seat(&[], Some("always"))
    }

    #[test]
    fn the_level_is_that_of_the_worst_node() {
        let forgetful = || seat(&[("aof_enabled", "0")], Some("everysec"));
        assert_eq!(level(&[good(), good(), good()]), Some(Level::Fenced));
        let one = [good(), good(), forgetful()];
        assert_eq!(level(&one), Some(Level::Advisory));
        let delayed = attested(&one, &["redlock.delayed_restart"]).unwrap();
        assert_eq!(delayed.level(), Some(Level::Leased));
        assert_eq!(level(&[good(), seat(&[("connected_slaves", "1")], Some("always")), good()]), Some(Level::Advisory));
        let full = [("maxmemory", "9"), ("maxmemory_policy", "allkeys-lru")];
        assert_eq!(level(&[good(), good(), seat(&full, Some("always"))]), None);
    }

    #[test]
    fn who_was_not_reached_does_not_vote_and_decides_nothing() {
        let seats = [good(), good(), ("h:3".to_owned(), None)];
        let found = guarantees(&seats);
        assert_eq!(found.level(), Some(Level::Fenced));
        let seeded = found.rules().iter().find(|rule| rule.id() == "redlock.seeded").unwrap();
        assert!(seeded.outcome() == RuleOutcome::Proved && seeded.reason().contains("h:3"), "{}", seeded.reason());
        assert_eq!(level(&[good(), ("h:2".to_owned(), None), ("h:3".to_owned(), None)]), None, "no majority votes");
    }

    #[test]
    fn only_what_a_node_hides_is_attested() {
        let hides = |key: &str| {
            let (address, facts) = good();
            (
                address,
                facts.map(|facts| Facts { info: facts.info.into_iter().filter(|(k, _)| k != key).collect(), ..facts }),
            )
        };
        for (hidden, rule) in [
            ("maxmemory_policy", "redlock.eviction"),
            ("run_id", "redlock.independent"),
            ("connected_slaves", "redlock.replicas"),
            ("aof_enabled", "redlock.persistence"),
        ] {
            let seats = [good(), hides(hidden), good()];
            assert!(guarantees(&seats).rule_is(rule, RuleOutcome::Unknown), "{rule}");
            assert!(attested(&seats, &[rule]).unwrap().rule_is(rule, RuleOutcome::Attested), "{rule}");
        }
        for (shown, rule) in [
            ([("maxmemory", "9"), ("maxmemory_policy", "allkeys-lru")], "redlock.eviction"),
            ([("connected_slaves", "1"), ("role", "master")], "redlock.replicas"),
            ([("aof_enabled", "0"), ("role", "master")], "redlock.persistence"),
        ] {
            let seats = [good(), good(), seat(&shown, Some("always"))];
            assert!(guarantees(&seats).rule_is(rule, RuleOutcome::Refused), "{rule}");
            assert_eq!(attested(&seats, &[rule]).unwrap_err().kind(), ErrorKind::Refused, "{rule}");
        }
        assert_eq!(
            attested(&[good(), good(), good()], &["redlock.lost_nodes"]).unwrap_err().kind(),
            ErrorKind::Refused
        );
    }
}
