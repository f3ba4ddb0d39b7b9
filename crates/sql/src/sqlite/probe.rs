//! What level a deployment supports, asked of the live connection.

use super::SqliteConfig;
use super::filesystem::{FileSystem, other_names};
use super::frame::Frame;
use fencelock_core::{Assumption, Capability, Guarantees, Level, Liveness, Result, Rule, Scope};
use sqlx::{Row as _, SqliteConnection};
use std::path::PathBuf;

/// What was found.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    version: String,
    journal: String,
    synchronous: i64,
    /// The file as SQLite opened it, with symbolic links followed.
    pub(crate) file: PathBuf,
    file_system: FileSystem,
    other_names: Option<&'static str>,
    boot_time: bool,
    notified: bool,
}

impl Probe {
    pub(crate) async fn run(connection: &mut SqliteConnection, frame: &Frame) -> sqlx::Result<Self> {
        let version = text(connection, "SELECT sqlite_version()").await?;
        let journal = text(connection, "PRAGMA journal_mode").await?;
        let file = text(connection, "SELECT file FROM pragma_database_list WHERE name = 'main'").await?;
        let rows = sqlx::query("PRAGMA synchronous").fetch_all(connection).await?;
        let synchronous = rows.first().map_or(Ok(0), |row| row.try_get(0))?;
        let file = PathBuf::from(file);
        let (file_system, other_names) = (FileSystem::of(&file), other_names(&file));
        #[cfg(target_os = "linux")]
        let notified = super::watch::works(&file);
        #[cfg(not(target_os = "linux"))]
        let notified = false;
        let boot_time = frame.is_boot_time();
        Ok(Self { version, journal, synchronous, file, file_system, other_names, boot_time, notified })
    }

    /// With what the configuration attests.
    pub(crate) fn guarantees(&self, config: &SqliteConfig) -> Result<Guarantees> {
        self.found().attest(&config.attested)
    }

    /// The same when it is not the first probe.
    pub(crate) fn guarantees_again(&self, config: &SqliteConfig) -> Guarantees {
        self.found().attest_again(&config.attested)
    }

    fn found(&self) -> Guarantees {
        let deployment = format!(
            "SQLite {}, journal {}, synchronous {}, {}",
            self.version,
            self.journal,
            self.synchronous_name(),
            self.file_system.name()
        );
        let mut found = Guarantees::of("sqlite", deployment, Scope::Host, Liveness::Lease)
            .with_assumption(Assumption::ServerMemory)
            .with_capability(Capability::InStoreGuard)
            .with_capability(Capability::Cohort)
            .with_rule(self.local_file())
            .with_rule(self.one_log())
            .with_rule(self.journal())
            .with_rule(self.boot_time())
            .with_rule(self.synchronous())
            .with_rule(self.fsync())
            .with_rule(
                Rule::new("sqlite.one_host", Level::Replicated)
                    .refused("one file on one host", "use a replicated engine, etcd or ZooKeeper"),
            );
        if !self.boot_time {
            // Holder and file are judged on two clocks then, and the file's can be stepped.
            found = found
                .with_assumption(Assumption::ClockRates)
                .with_assumption(Assumption::ServerClock)
                .with_assumption(Assumption::HolderClock);
        }
        if self.notified {
            found = found.with_capability(Capability::NotifiedWaiting);
        }
        found
    }

    /// Without shared memory and file locks between all who lock there is no exclusion at all.
    fn local_file(&self) -> Rule {
        let rule = Rule::new("sqlite.local_file", Level::Advisory);
        match self.file_system {
            FileSystem::Local(name) | FileSystem::Memory(name) => rule.proved(format!("{name} is on this host")),
            FileSystem::Network(name) => rule.refused(
                format!("{name} is a network file system, where SQLite's log and locks do not work"),
                "put the file on a local disk, or use a server engine",
            ),
            FileSystem::Hidden(name) => {
                rule.unknown(format!("{name} hides whether a network is behind it")).attestable()
            }
            FileSystem::Unknown => rule.unknown("a file system of unknown type").attestable(),
        }
    }

    fn one_log(&self) -> Rule {
        let rule = Rule::new("sqlite.one_log", Level::Advisory);
        match self.other_names {
            None => rule.proved("the file has one name, and so one log"),
            Some(why) => rule.refused(
                format!("{why}, so that another program may have another log beside it"),
                "give the file one name, and mount its directory as a whole",
            ),
        }
    }

    /// Other journals are given up by a crash in other ways, one of them by damage.
    fn journal(&self) -> Rule {
        let rule = Rule::new("sqlite.journal", Level::Leased);
        if self.journal.eq_ignore_ascii_case("wal") {
            rule.proved("write-ahead log")
        } else {
            rule.refused(
                format!("journal_mode is {}", self.journal),
                "let SQLite use WAL: a local file, no special VFS",
            )
        }
    }

    fn boot_time(&self) -> Rule {
        let rule = Rule::new("sqlite.boot_time", Level::Leased);
        if self.boot_time {
            rule.proved("expiry counts in boot time, under the boot's id")
        } else {
            rule.assumed("expiry counts on the wall clock, which must not be stepped (T2)")
        }
    }

    /// A power loss ends every holder on the host, so a forgotten lock excludes
    /// nobody wrongly; but its token would be given out again.
    fn synchronous(&self) -> Rule {
        let rule = Rule::new("sqlite.synchronous", Level::Fenced);
        let name = self.synchronous_name();
        if self.synchronous >= 2 {
            rule.proved(format!("synchronous is {name}"))
        } else {
            rule.refused(
                format!("synchronous is {name}: a power loss may forget a token that was granted"),
                "set synchronous = full",
            )
        }
    }

    fn fsync(&self) -> Rule {
        let rule = Rule::new("sqlite.fsync", Level::Fenced);
        match self.file_system {
            FileSystem::Memory(name) => rule.refused(
                format!("{name} keeps nothing through a power loss, and tokens would be given out again"),
                "put the file on a disk",
            ),
            _ => rule.assumed("the disk keeps what it acknowledged (T4)"),
        }
    }

    const fn synchronous_name(&self) -> &'static str {
        match self.synchronous {
            0 => "off",
            1 => "normal",
            2 => "full",
            _ => "extra",
        }
    }
}

async fn text(connection: &mut SqliteConnection, sql: &'static str) -> sqlx::Result<String> {
    let rows = sqlx::query(sql).fetch_all(connection).await?;
    rows.first().map_or(Ok(String::new()), |row| row.try_get(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock_core::RuleOutcome;

    fn probe(file_system: FileSystem) -> Probe {
        let (version, journal, file) = ("3".to_owned(), "wal".to_owned(), PathBuf::from("l.db"));
        Probe {
            version,
            journal,
            synchronous: 2,
            file,
            file_system,
            other_names: None,
            boot_time: true,
            notified: true,
        }
    }

    fn level(probe: &Probe) -> Option<Level> {
        probe.guarantees(&SqliteConfig::new("l.db")).unwrap().level()
    }

    #[test]
    fn the_level_follows_from_what_was_found() {
        let disk = probe(FileSystem::Local("ext"));
        assert_eq!(level(&disk), Some(Level::Fenced));
        assert_eq!(level(&Probe { synchronous: 1, ..disk.clone() }), Some(Level::Leased));
        assert_eq!(level(&Probe { journal: "delete".into(), ..disk.clone() }), Some(Level::Advisory));
        assert_eq!(level(&probe(FileSystem::Memory("tmpfs"))), Some(Level::Leased));
        assert_eq!(level(&probe(FileSystem::Network("nfs"))), None);
        assert_eq!(level(&probe(FileSystem::Unknown)), None);
    }

    #[test]
    fn an_unknown_file_system_can_be_attested_and_a_network_cannot() {
        let config = SqliteConfig::new("l.db").with_attested(["sqlite.local_file"]);
        let attested = probe(FileSystem::Hidden("fuse")).guarantees(&config).unwrap();
        assert!(attested.rule_is("sqlite.local_file", RuleOutcome::Attested));
        assert_eq!(attested.level(), Some(Level::Fenced));
        assert!(probe(FileSystem::Network("nfs")).guarantees(&config).is_err());
    }

    #[test]
    fn the_wall_clock_is_an_assumption() {
        let walled = Probe { boot_time: false, ..probe(FileSystem::Local("ext")) };
        let found = walled.guarantees(&SqliteConfig::new("l.db")).unwrap();
        assert!(found.assumptions().any(|a| a == Assumption::ServerClock));
        assert_eq!(found.level(), Some(Level::Fenced));
    }
}
