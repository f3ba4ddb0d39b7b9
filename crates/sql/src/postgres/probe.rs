//! What level a deployment supports, asked of the live connection.

use super::PostgresConfig;
use fencelock_core::{Assumption, Capability, Guarantees, Level, Liveness, Result, Rule, Scope};
use sqlx::postgres::PgConnection;
use sqlx::{Executor as _, Row as _};

/// What was found.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    version: String,
    fsync: String,
    synchronous_commit: String,
    full_page_writes: String,
    in_recovery: bool,
    read_only: bool,
    synchronous_names: String,
    standbys: i64,
    synchronous_standbys: i64,
    /// Slots for standbys that are not connected.
    absent_standbys: i64,
    /// Whether this user is shown the state of standbys.
    sees_standbys: bool,
    pooled: bool,
}

impl Probe {
    pub(crate) async fn run(connection: &mut PgConnection, pooled: bool) -> sqlx::Result<Self> {
        let rows = connection.fetch_all(sqlx::raw_sql(include_str!("sql/probe.sql"))).await?;
        let Some(row) = rows.first() else { return Err(sqlx::Error::RowNotFound) };
        Ok(Self {
            version: row.try_get(0)?,
            fsync: row.try_get(1)?,
            synchronous_commit: row.try_get(2)?,
            full_page_writes: row.try_get(3)?,
            in_recovery: row.try_get(4)?,
            read_only: row.try_get::<String, _>(5)? == "on",
            synchronous_names: row.try_get(6)?,
            standbys: row.try_get(7)?,
            synchronous_standbys: row.try_get(8)?,
            absent_standbys: row.try_get(9)?,
            sees_standbys: row.try_get(10)?,
            pooled,
        })
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.in_recovery || self.read_only
    }

    /// With what the configuration attests.
    pub(crate) fn guarantees(&self, config: &PostgresConfig) -> Result<Guarantees> {
        self.found().attest(&config.server.attested)
    }

    /// The same when it is not the first probe.
    pub(crate) fn guarantees_again(&self, config: &PostgresConfig) -> Guarantees {
        self.found().attest_again(&config.server.attested)
    }

    fn found(&self) -> Guarantees {
        let pooler = if self.pooled { ", behind a transaction pooler" } else { "" };
        let deployment = format!(
            "PostgreSQL {}, fsync {}, synchronous_commit {}, {}{pooler}",
            self.version.split_whitespace().next().unwrap_or_default(),
            self.fsync,
            self.synchronous_commit,
            match (self.standbys, self.sees_standbys) {
                (0, true) => "no standby".to_owned(),
                (0, false) => "no standby that this user is shown".to_owned(),
                (all, true) => format!("{all} standbys, {} of them synchronous", self.synchronous_standbys),
                (all, false) => format!("{all} standbys"),
            },
        );
        let mut found = Guarantees::of("postgres", deployment, Scope::Network, Liveness::Lease)
            .with_assumption(Assumption::ClockRates)
            .with_assumption(Assumption::ServerClock)
            .with_assumption(Assumption::HolderClock)
            .with_assumption(Assumption::ServerMemory)
            .with_capability(Capability::InStoreGuard)
            .with_capability(Capability::Cohort)
            .with_rule(self.primary())
            .with_rule(self.fsync())
            .with_rule(self.synchronous_commit())
            .with_rule(self.full_page_writes())
            .with_rule(self.standbys())
            .with_rule(
                Rule::new("postgres.clock", Level::Leased)
                    .assumed("nobody can probe that the server's clock is not stepped"),
            )
            .with_rule(Rule::new("postgres.disk", Level::Fenced).assumed("the disk keeps what it acknowledged (T4)"))
            .with_rule(self.replicated());
        if !self.pooled {
            found = found.with_capability(Capability::NotifiedWaiting);
        }
        found
    }

    fn primary(&self) -> Rule {
        let rule = Rule::new("postgres.primary", Level::Advisory);
        if self.is_read_only() {
            let reason = "the server takes no writes: it is a standby, or was made read-only";
            rule.refused(reason, "connect to the primary")
        } else {
            rule.proved("the server takes writes")
        }
    }

    fn fsync(&self) -> Rule {
        on("postgres.fsync", "fsync", &self.fsync, "a power loss may forget locks that are held, or damage the table")
    }

    fn full_page_writes(&self) -> Rule {
        let harm = "a power loss may leave half a page of the table";
        on("postgres.full_page_writes", "full_page_writes", &self.full_page_writes, harm)
    }

    /// Anything less than on is mended in sessions of our own, which behind a pooler there are none of.
    fn synchronous_commit(&self) -> Rule {
        let rule = Rule::new("postgres.synchronous_commit", Level::Leased);
        if self.synchronous_commit == "off" {
            rule.refused(
                "synchronous_commit is off: a crash of the server may forget locks that are held",
                "set synchronous_commit = on, for this database or user",
            )
        } else {
            rule.proved(format!("synchronous_commit is {}", self.synchronous_commit))
        }
    }

    /// Whether a grant waits until a standby has it on its disk.
    fn is_synchronous(&self) -> bool {
        !self.synchronous_names.is_empty() && matches!(self.synchronous_commit.as_str(), "on" | "remote_apply")
    }

    fn standbys(&self) -> Rule {
        let rule = Rule::new("postgres.standbys", Level::Leased);
        if self.standbys > 0 && !self.sees_standbys {
            rule.unknown(
                "there are standbys, and this user is not shown whether they are synchronous: grant it pg_monitor",
            )
            .attestable()
        } else if self.is_synchronous() && self.synchronous_standbys < self.standbys {
            rule.refused(
                "some standbys are asynchronous: one that is promoted may lack locks that are held",
                "let every standby be synchronous, in synchronous_standby_names",
            )
        } else if self.is_synchronous() && self.absent_standbys > 0 {
            rule.refused(
                "a replication slot is kept for a standby that is away: promoted as it is, it may lack locks that are held",
                "bring the standby back, or drop its slot",
            )
        } else if self.is_synchronous() {
            rule.proved("what is acknowledged is on a synchronous standby")
        } else if self.standbys > 0 || self.absent_standbys > 0 {
            rule.refused(
                "a standby that is promoted may lack locks that are held, since it is asynchronous",
                "make it synchronous (synchronous_standby_names), or use etcd or ZooKeeper",
            )
        } else if self.sees_standbys {
            rule.assumed(
                "no standby is connected, and none has a slot; nobody can probe that no other comes back and is promoted",
            )
        } else {
            rule.unknown("this user is not shown whether there are standbys: grant it pg_monitor").attestable()
        }
    }

    fn replicated(&self) -> Rule {
        let rule = Rule::new("postgres.failover", Level::Replicated);
        if self.is_synchronous() {
            rule.unknown("nobody can probe that only a synchronous standby is ever promoted").attestable()
        } else {
            rule.refused(
                "one server: when it is lost, so are its locks",
                "use synchronous replication with a fail-over that heeds it, or etcd or ZooKeeper",
            )
        }
    }
}

fn on(id: &'static str, setting: &str, value: &str, harm: &str) -> Rule {
    let rule = Rule::new(id, Level::Leased);
    if value == "on" {
        rule.proved(format!("{setting} is on"))
    } else {
        rule.refused(format!("{setting} is {value}: {harm}"), format!("set {setting} = on"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock_core::RuleOutcome;

    fn durable() -> Probe {
        Probe {
            version: "15.18 (Debian)".into(),
            fsync: "on".into(),
            synchronous_commit: "on".into(),
            full_page_writes: "on".into(),
            in_recovery: false,
            read_only: false,
            synchronous_names: String::new(),
            standbys: 0,
            synchronous_standbys: 0,
            absent_standbys: 0,
            sees_standbys: true,
            pooled: false,
        }
    }

    fn level(probe: &Probe) -> Option<Level> {
        probe.guarantees(&PostgresConfig::new("h", "d")).unwrap().level()
    }

    #[test]
    fn the_level_follows_from_what_was_found() {
        assert_eq!(level(&durable()), Some(Level::Fenced));
        assert_eq!(level(&Probe { fsync: "off".into(), ..durable() }), Some(Level::Advisory));
        assert_eq!(level(&Probe { synchronous_commit: "off".into(), ..durable() }), Some(Level::Advisory));
        assert_eq!(level(&Probe { full_page_writes: "off".into(), ..durable() }), Some(Level::Advisory));
        assert_eq!(level(&Probe { standbys: 1, ..durable() }), Some(Level::Advisory));
        assert_eq!(level(&Probe { sees_standbys: false, ..durable() }), Some(Level::Advisory));
        assert_eq!(level(&Probe { absent_standbys: 1, ..durable() }), Some(Level::Advisory));
        assert_eq!(level(&Probe { in_recovery: true, ..durable() }), None);
        assert_eq!(level(&Probe { pooled: true, ..durable() }), Some(Level::Fenced));
    }

    #[test]
    fn synchronous_standbys_are_fenced_and_replicated_if_attested() {
        let strict = Probe { synchronous_names: "*".into(), standbys: 1, synchronous_standbys: 1, ..durable() };
        assert_eq!(level(&strict), Some(Level::Fenced));
        let config = PostgresConfig::new("h", "d").with_attested(["postgres.failover"]);
        let attested = strict.guarantees(&config).unwrap();
        assert!(attested.rule_is("postgres.failover", RuleOutcome::Attested));
        assert_eq!(attested.level(), Some(Level::Replicated));
        assert!(durable().guarantees(&config).is_err(), "one server cannot be attested to be two");
        assert_eq!(level(&Probe { standbys: 2, ..strict.clone() }), Some(Level::Advisory));
        assert_eq!(level(&Probe { absent_standbys: 1, ..strict.clone() }), Some(Level::Advisory));
        assert_eq!(level(&Probe { synchronous_commit: "local".into(), ..strict.clone() }), Some(Level::Advisory));
        assert_eq!(
            level(&Probe { synchronous_commit: "remote_write".into(), ..strict.clone() }),
            Some(Level::Advisory)
        );
        let hidden = Probe { sees_standbys: false, synchronous_standbys: 0, ..strict };
        assert!(
            hidden
                .guarantees(&PostgresConfig::new("h", "d"))
                .unwrap()
                .rule_is("postgres.standbys", RuleOutcome::Unknown)
        );
    }

    #[test]
    fn what_the_server_disproved_cannot_be_attested() {
        let config = PostgresConfig::new("h", "d").with_attested(["postgres.standbys"]);
        assert!(Probe { standbys: 1, ..durable() }.guarantees(&config).is_err());
        let blind = Probe { sees_standbys: false, ..durable() }.guarantees(&config).unwrap();
        assert_eq!(blind.level(), Some(Level::Fenced));
    }
}
