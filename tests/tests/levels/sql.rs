//! Databases, with settings that keep what they acknowledge and with others.

use crate::{Rows, found};
use fencelock_core::{Guarantees, Level, Liveness, Scope};
use fencelock_lab::{MariaDb, Postgres};
use sqlx::{Connection as _, Executor as _};
use std::sync::Arc;
use std::time::Duration;

/// What is found once a standby has connected.
async fn with_a_standby(url: &str) -> Arc<Guarantees> {
    let mut last = Arc::new(Guarantees::of("postgres", "not asked", Scope::Network, Liveness::Lease));
    for _ in 0..250 {
        last = found(url).await;
        if last.deployment().contains("1 standbys") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    last
}

#[tokio::test]
async fn sqlite() {
    let mut rows = Rows::of("sqlite");
    // Under target/, since the system's temporary folder may be in memory, which is another deployment.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let url = |settings: &str| format!("sqlite:{}{settings}", directory.path().join("locks.db").display());
    let full = found(url("")).await;
    rows.add(
        "one file on a local file system, `synchronous=FULL`, on Linux",
        &full,
        Level::Fenced,
        Some("sqlite.one_host"),
    );
    let off = found(url("?synchronous=off")).await;
    rows.add(
        "one file on a local file system, `synchronous=OFF`, on Linux",
        &off,
        Level::Leased,
        Some("sqlite.synchronous"),
    );
    let here = full.rules().iter().find(|rule| rule.id() == "sqlite.local_file").unwrap().reason().to_owned();
    let (file_system, _) = here.split_once(" is on this host").unwrap();
    rows.compare(|text| text.replace(file_system, "its file system"));
}

#[tokio::test]
async fn postgres() {
    let mut rows = Rows::of("postgres");
    let durable = Postgres::start_durable().unwrap();
    rows.add(
        "one server with durable settings, no standby",
        &*found(durable.url()).await,
        Level::Fenced,
        Some("postgres.failover"),
    );
    let loose = Postgres::start().unwrap();
    rows.add("one server, `fsync` off", &*found(loose.url()).await, Level::Advisory, Some("postgres.fsync"));
    let unsynced = Postgres::start_with(["synchronous_commit=off"]).unwrap();
    let mended = found(unsynced.url()).await;
    rows.add(
        "one server, `synchronous_commit` off, which is turned on in sessions of our own",
        &mended,
        Level::Fenced,
        Some("postgres.failover"),
    );
    let copied = Postgres::start_durable().unwrap();
    let _asynchronous = copied.start_standby("away", &[]).unwrap();
    rows.add(
        "one server and an asynchronous standby",
        &*with_a_standby(&copied.url()).await,
        Level::Advisory,
        Some("postgres.standbys"),
    );
    let strict = Postgres::start_with(["synchronous_standby_names=*"]).unwrap();
    let _synchronous = strict.start_standby("near", &[]).unwrap();
    let synchronous = with_a_standby(&strict.url()).await;
    rows.add("one server and a synchronous standby", &synchronous, Level::Fenced, Some("postgres.failover"));
    let attested = found(format!("{}?attest=postgres.failover", strict.url())).await;
    rows.add("one server and a synchronous standby, `postgres.failover` attested", &attested, Level::Replicated, None);
    let pages = Postgres::start_with(["full_page_writes=off"]).unwrap();
    rows.add(
        "one server, `full_page_writes` off",
        &*found(pages.url()).await,
        Level::Advisory,
        Some("postgres.full_page_writes"),
    );
    rows.compare(|text| text);
}

/// A durable server, and one that copies it.
async fn replicated() -> (MariaDb, MariaDb) {
    let start = |id: &str| {
        let durable = ["--innodb-flush-log-at-trx-commit=1", "--log-bin=log", "--sync-binlog=1", id];
        MariaDb::start_with(durable).unwrap()
    };
    let (primary, replica) = (start("--server-id=1"), start("--server-id=2"));
    let port = primary.address().port();
    let mut there = sqlx::MySqlConnection::connect(&replica.url()).await.unwrap();
    let follow = format!("CHANGE MASTER TO master_host = '127.0.0.1', master_port = {port}, master_user = 'root'");
    there.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(follow))).await.unwrap();
    there.execute("START SLAVE").await.unwrap();
    for _ in 0..250 {
        if found(primary.url()).await.level() < Some(Level::Fenced) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    (primary, replica)
}

#[tokio::test]
async fn mysql() {
    let mut rows = Rows::of("mysql");
    let durable = MariaDb::start_durable().unwrap();
    rows.add(
        "MariaDB, one server with durable settings, no replica",
        &*found(durable.url()).await,
        Level::Fenced,
        Some("mysql.failover"),
    );
    let lazy = MariaDb::start_with(["--innodb-flush-log-at-trx-commit=2"]).unwrap();
    rows.add(
        "MariaDB, one server, `innodb_flush_log_at_trx_commit` 2",
        &*found(lazy.url()).await,
        Level::Advisory,
        Some("mysql.flush"),
    );
    let logged = MariaDb::start_with(["--log-bin=log", "--sync-binlog=0"]).unwrap();
    rows.add(
        "MariaDB, one server, a binary log with `sync_binlog` 0",
        &*found(logged.url()).await,
        Level::Advisory,
        Some("mysql.sync_binlog"),
    );
    let (primary, _replica) = replicated().await;
    rows.add(
        "MariaDB, one server with an asynchronous replica",
        &*found(primary.url()).await,
        Level::Advisory,
        Some("mysql.replicas"),
    );
    let galera = MariaDb::start_galera().unwrap();
    rows.add("MariaDB, a Galera cluster", &*found(galera.url()).await, Level::Advisory, Some("mysql.galera"));
    rows.compare(|text| text);
}
