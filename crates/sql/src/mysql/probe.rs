//! What level a deployment supports, asked of the live connection.

use super::MySqlConfig;
use fencelock_core::{Assumption, Capability, Guarantees, Level, Liveness, Result, Rule, Scope};
use sqlx::mysql::MySqlConnection;
use sqlx::{Executor as _, Row as _};
use std::collections::BTreeMap;

/// What was found: variables by name, and who copies from this server.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    variables: BTreeMap<String, String>,
    replicas: i64,
    /// Whether this user is shown who copies.
    sees_replicas: bool,
    /// Members of the server's group that take part in it, itself among them; 0 if it is in none.
    online_members: i64,
}

impl Probe {
    pub(crate) async fn run(connection: &mut MySqlConnection) -> sqlx::Result<Self> {
        let mut variables = BTreeMap::new();
        for row in connection.fetch_all(sqlx::raw_sql(include_str!("sql/variables.sql"))).await? {
            variables.insert(row.try_get::<String, _>(0)?.to_ascii_lowercase(), row.try_get(1)?);
        }
        let rows = connection.fetch_all(sqlx::raw_sql(include_str!("sql/replicas.sql"))).await?;
        let Some(row) = rows.first() else { return Err(sqlx::Error::RowNotFound) };
        let (replicas, sees) = (row.try_get(0)?, row.try_get::<i64, _>(1)?);
        let mut found = Self { variables, replicas, sees_replicas: sees > 0, online_members: 0 };
        if !found.get("group_replication_group_name").is_empty() {
            // Not to be shown it is not to be in one.
            let rows = connection.fetch_all(sqlx::raw_sql(include_str!("sql/members.sql"))).await.unwrap_or_default();
            found.online_members = rows.first().map_or(Ok(0), |row| row.try_get(0))?;
        }
        Ok(found)
    }

    fn get(&self, name: &str) -> &str {
        self.variables.get(name).map_or("", String::as_str)
    }

    fn is_on(&self, name: &str) -> bool {
        matches!(self.get(name).to_ascii_lowercase().as_str(), "on" | "1" | "yes")
    }

    pub(crate) fn is_mariadb(&self) -> bool {
        self.get("version").contains("MariaDB")
    }

    /// Whether a statement may be for many locks: `INSERT … RETURNING` is known there
    /// (<https://mariadb.com/kb/en/insertreturning/>), and no replica works the statement off again, whose `read_only` it would look at.
    pub(crate) fn has_statements_for_many(&self) -> bool {
        let mut numbers = self.get("version").split('.').map(|number| number.parse::<u32>().unwrap_or(0));
        let returns = self.is_mariadb() && (numbers.next(), numbers.next()) >= (Some(10), Some(5));
        returns && !(self.is_on("log_bin") && self.get("binlog_format").eq_ignore_ascii_case("statement"))
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.is_on("read_only") || self.is_on("super_read_only")
    }

    fn is_galera(&self) -> bool {
        self.is_on("wsrep_on")
    }

    /// Whether it is a member of a group, not only set up to be one.
    fn is_group(&self) -> bool {
        self.online_members > 0
    }

    fn is_multi_primary(&self) -> bool {
        self.is_group() && !self.is_on("group_replication_single_primary_mode")
    }

    /// With what the configuration attests.
    pub(crate) fn guarantees(&self, config: &MySqlConfig) -> Result<Guarantees> {
        self.found().attest(&config.server.attested)
    }

    /// The same when it is not the first probe.
    pub(crate) fn guarantees_again(&self, config: &MySqlConfig) -> Guarantees {
        self.found().attest_again(&config.server.attested)
    }

    fn found(&self) -> Guarantees {
        let version = self.get("version").split('-').next().unwrap_or_default();
        let deployment = format!(
            "{} {version}, innodb_flush_log_at_trx_commit {}, {}",
            if self.is_mariadb() { "MariaDB" } else { "MySQL" },
            self.get("innodb_flush_log_at_trx_commit"),
            if self.is_galera() {
                "Galera cluster".to_owned()
            } else if self.is_group() {
                "group replication".to_owned()
            } else if !self.is_on("log_bin") {
                "no binary log".to_owned()
            } else {
                format!("binary log with sync_binlog {}, {} replicas", self.get("sync_binlog"), self.replicas)
            },
        );
        Guarantees::of("mysql", deployment, Scope::Network, Liveness::Lease)
            .with_assumption(Assumption::ClockRates)
            .with_assumption(Assumption::ServerClock)
            .with_assumption(Assumption::HolderClock)
            .with_assumption(Assumption::ServerMemory)
            .with_capability(Capability::InStoreGuard)
            .with_capability(Capability::Cohort)
            .with_rule(self.primary())
            .with_rule(self.flush())
            .with_rule(self.doublewrite())
            .with_rule(self.binlog())
            .with_rule(self.galera())
            .with_rule(self.replicas())
            .with_rule(
                Rule::new("mysql.clock", Level::Leased)
                    .assumed("nobody can probe that the server's clock is not stepped"),
            )
            .with_rule(Rule::new("mysql.disk", Level::Fenced).assumed("the disk keeps what it acknowledged (T4)"))
            .with_rule(self.failover())
    }

    fn primary(&self) -> Rule {
        let rule = Rule::new("mysql.primary", Level::Advisory);
        if self.is_read_only() {
            rule.refused("the server is read-only", "connect to the primary")
        } else {
            rule.proved("the server takes writes")
        }
    }

    fn flush(&self) -> Rule {
        let rule = Rule::new("mysql.flush", Level::Leased);
        let value = self.get("innodb_flush_log_at_trx_commit");
        if !matches!(value, "1" | "3") {
            return rule.refused(
                format!("`innodb_flush_log_at_trx_commit` is {value}: a crash may forget locks that are held"),
                "set innodb_flush_log_at_trx_commit = 1",
            );
        }
        if self.get("innodb_flush_method").to_ascii_lowercase().contains("nosync") {
            return rule.refused("innodb_flush_method does not sync", "leave innodb_flush_method as it comes");
        }
        rule.proved(format!("innodb_flush_log_at_trx_commit is {value}"))
    }

    fn doublewrite(&self) -> Rule {
        let rule = Rule::new("mysql.doublewrite", Level::Leased);
        let value = self.get("innodb_doublewrite");
        if matches!(value.to_ascii_lowercase().as_str(), "off" | "0" | "detect_only") {
            let reason = format!("innodb_doublewrite is {value}: a power loss may leave half a page of the table");
            rule.refused(reason, "set innodb_doublewrite = ON")
        } else {
            rule.proved(format!("innodb_doublewrite is {value}"))
        }
    }

    /// What is not in the binary log is rolled back after a crash, acknowledged or not.
    fn binlog(&self) -> Rule {
        let rule = Rule::new("mysql.sync_binlog", Level::Leased);
        if !self.is_on("log_bin") {
            rule.proved("there is no binary log")
        } else if self.get("sync_binlog") == "1" {
            rule.proved("sync_binlog is 1")
        } else {
            let reason = format!("sync_binlog is {}: a crash may forget locks that are held", self.get("sync_binlog"));
            rule.refused(reason, "set sync_binlog = 1")
        }
    }

    fn galera(&self) -> Rule {
        let rule = Rule::new("mysql.galera", Level::Leased);
        if self.is_galera() {
            rule.refused(
                "nodes of a Galera cluster do not lock rows for each other: each reads its own copy, which may lag, and two grant until one of them fails to certify",
                "use one server, group replication with one primary, or etcd or ZooKeeper",
            )
        } else {
            rule.proved("no Galera cluster")
        }
    }

    fn replicas(&self) -> Rule {
        let rule = Rule::new("mysql.replicas", Level::Leased);
        if self.is_multi_primary() {
            rule.refused(
                "members of a group with several primaries do not lock rows for each other: two grant until one of them fails to certify",
                "set group_replication_single_primary_mode = ON",
            )
        } else if self.is_group() {
            rule.proved("a group agrees on what it commits")
        } else if !self.is_on("log_bin") {
            rule.proved("without a binary log nobody copies from this server")
        } else if self.replicas > 0 || self.is_semi_synchronous() {
            rule.refused(
                "a replica that is promoted may lack locks that are held, semi-synchronous or not",
                "use group replication, or etcd or ZooKeeper",
            )
        } else if self.sees_replicas {
            rule.assumed("no replica is connected; nobody can probe that none comes back and is promoted")
        } else {
            rule.unknown("this user is not shown whether there are replicas: grant it PROCESS").attestable()
        }
    }

    /// Whoever has set that up has a replica to promote, connected or not.
    fn is_semi_synchronous(&self) -> bool {
        self.is_on("rpl_semi_sync_master_enabled") || self.is_on("rpl_semi_sync_source_enabled")
    }

    fn failover(&self) -> Rule {
        let rule = Rule::new("mysql.failover", Level::Replicated);
        if self.is_group() && !self.is_multi_primary() && !self.is_galera() {
            rule.unknown(
                "nobody can probe that there is one primary at a time, with consistency BEFORE_ON_PRIMARY_FAILOVER",
            )
            .attestable()
        } else {
            rule.refused("one server: when it is lost, so are its locks", "use group replication, or etcd or ZooKeeper")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(changes: &[(&str, &str)], replicas: i64) -> Probe {
        let durable = [
            ("version", "10.11.19-MariaDB"),
            ("innodb_flush_log_at_trx_commit", "1"),
            ("innodb_doublewrite", "ON"),
            ("log_bin", "OFF"),
            ("sync_binlog", "0"),
            ("read_only", "OFF"),
        ];
        let variables = durable.iter().chain(changes).map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Probe { variables, replicas, sees_replicas: true, online_members: 0 }
    }

    fn level(changes: &[(&str, &str)], replicas: i64) -> Option<Level> {
        probe(changes, replicas).guarantees(&MySqlConfig::new("h", "d")).unwrap().level()
    }

    #[test]
    fn the_level_follows_from_what_was_found() {
        let logged = [("log_bin", "ON"), ("sync_binlog", "1")];
        assert_eq!(level(&[], 0), Some(Level::Fenced));
        assert_eq!(level(&logged, 0), Some(Level::Fenced));
        assert_eq!(level(&logged, 1), Some(Level::Advisory));
        for weak in [
            ("innodb_flush_log_at_trx_commit", "2"),
            ("innodb_flush_method", "nosync"),
            ("innodb_doublewrite", "OFF"),
            ("log_bin", "ON"),
            ("wsrep_on", "ON"),
        ] {
            assert_eq!(level(&[weak], 0), Some(Level::Advisory), "{weak:?}");
        }
        for semi in ["rpl_semi_sync_master_enabled", "rpl_semi_sync_source_enabled"] {
            assert_eq!(level(&[logged[0], logged[1], (semi, "ON")], 0), Some(Level::Advisory), "{semi}");
        }
        assert_eq!(level(&[("read_only", "ON")], 0), None);
        let blind = Probe { sees_replicas: false, ..probe(&logged, 0) };
        assert_eq!(blind.guarantees(&MySqlConfig::new("h", "d")).unwrap().level(), Some(Level::Advisory));
    }

    #[test]
    fn a_group_is_fenced_and_replicated_if_attested() {
        let set_up = [
            ("group_replication_group_name", "g"),
            ("group_replication_single_primary_mode", "ON"),
            ("log_bin", "ON"),
            ("sync_binlog", "1"),
        ];
        let group = Probe { online_members: 3, ..probe(&set_up, 2) };
        assert_eq!(level(&set_up, 2), Some(Level::Advisory), "set up, and not a member");
        let several = [set_up[0], ("group_replication_single_primary_mode", "OFF"), set_up[2], set_up[3]];
        let several = Probe { online_members: 3, ..probe(&several, 2) };
        assert_eq!(several.guarantees(&MySqlConfig::new("h", "d")).unwrap().level(), Some(Level::Advisory));
        let config = MySqlConfig::new("h", "d").with_attested(["mysql.failover"]);
        assert_eq!(group.guarantees(&MySqlConfig::new("h", "d")).unwrap().level(), Some(Level::Fenced));
        assert_eq!(group.guarantees(&config).unwrap().level(), Some(Level::Replicated));
        let galera = probe(&[("wsrep_on", "ON")], 0);
        let reason = galera.guarantees(&MySqlConfig::new("h", "d")).unwrap().require(Level::Leased).unwrap_err();
        assert!(reason.message().contains("certify"), "{reason}");
    }
}
