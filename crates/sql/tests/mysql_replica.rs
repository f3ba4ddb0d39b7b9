//! MariaDB with a replica, as a Galera node, and through TLS.
#![cfg(feature = "mysql")]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests")]

mod server;

use fencelock_core::{DistributedLock as _, EngineUrl, ErrorKind, Level, LockClient, RuleOutcome};
use fencelock_lab::MariaDb;
use fencelock_sql::SqlLock;
use fencelock_sql::mysql::MySqlConfig;
use server::*;
use std::sync::Arc;

async fn connect_attesting(db: &My, rule: &str) -> fencelock_core::Result<Arc<SqlLock>> {
    SqlLock::mysql(MySqlConfig::from_url(&EngineUrl::parse(&db.url())?)?.with_attested([rule])).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_is_refused_above_advisory() {
    let durable = ["--innodb-flush-log-at-trx-commit=1", "--log-bin=b", "--sync-binlog=1"];
    let primary = My(MariaDb::start_with(durable.into_iter().chain(["--server-id=1"])).unwrap());
    assert_eq!(primary.engine().await.guarantees().level(), Some(Level::Fenced), "nobody copies yet");
    let replica = My(MariaDb::start_with(durable.into_iter().chain(["--server-id=2", "--read-only=1"])).unwrap());
    let port = primary.address().port();
    replica
        .run(&format!("CHANGE MASTER TO master_host = '127.0.0.1', master_port = {port}, master_user = 'root'"))
        .await;
    replica.run("START SLAVE").await;
    let tables = "SELECT count(*) FROM information_schema.tables WHERE table_name = 'fencelock_locks_voids'";
    until("the replica has the tables", async || replica.number(tables).await > 0).await;

    let guarantees = primary.engine().await.guarantees();
    assert_eq!(guarantees.level(), Some(Level::Advisory));
    let e = guarantees.require(Level::Leased).unwrap_err();
    println!("{e}");
    assert!(e.message().contains("replica that is promoted") && e.message().contains("mysql.replicas"), "{e}");
    assert!(connect_attesting(&primary, "mysql.replicas").await.is_err(), "what was disproved is not attested");
    primary.run("CREATE USER app@'%'; GRANT ALL ON test.* TO app@'%'").await;
    let app = My::connect(&primary.url().replace("root@", "app@")).await.unwrap();
    let e = app.guarantees().require(Level::Leased).unwrap_err();
    assert!(e.message().contains("PROCESS"), "{e}");

    // One that is away is not seen, and nothing is said to be proved.
    assert!(guarantees.rule_is("mysql.replicas", RuleOutcome::Refused));
    replica.run("STOP SLAVE").await;
    until("it is away", async || {
        // Who is copied from finds it out when there is something to send.
        primary.run("CREATE OR REPLACE TABLE nudge (n INT)").await;
        let found = primary.engine().await.guarantees();
        found.level() == Some(Level::Fenced) && found.rule_is("mysql.replicas", RuleOutcome::Assumed)
    })
    .await;
    primary.run("SET GLOBAL rpl_semi_sync_master_enabled = ON").await;
    assert_eq!(primary.engine().await.guarantees().level(), Some(Level::Advisory), "there is one, then");
    primary.run("SET GLOBAL rpl_semi_sync_master_enabled = OFF").await;
    replica.run("START SLAVE").await;

    // A replica gives no locks, to an administrator neither, until it takes writes.
    let held = primary.client().await.named("a").ttl(ms(60_000)).acquire().await.unwrap();
    until("replayed", async || replica.number("SELECT count(*) FROM fencelock_locks WHERE name = 'a'").await > 0).await;
    let engine = replica.engine().await;
    assert_eq!(engine.guarantees().level(), None);
    assert!(engine.guarantees().rule_is("mysql.primary", RuleOutcome::Refused));
    let there = LockClient::new(engine).unwrap();
    let e = there.try_acquire("b").await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    assert!(e.to_string().contains("no writes"), "{e}");
    drop(primary);
    replica.run("STOP SLAVE").await;
    replica.run("SET GLOBAL read_only = 0").await;
    until("served", async || there.try_acquire("b").await.is_ok()).await;
    assert!(there.try_acquire("a").await.unwrap().is_none());
    assert_eq!(there.inspect("a").await.unwrap().unwrap().token, held.token());
    // Demoted under open connections.
    replica.run("SET GLOBAL read_only = 1").await;
    let e = there.try_acquire("new").await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    assert!(e.to_string().contains("no writes"), "{e}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_galera_cluster_is_refused_above_advisory() {
    let node = My(MariaDb::start_galera().unwrap());
    let guarantees = node.engine().await.guarantees();
    assert_eq!(guarantees.level(), Some(Level::Advisory));
    assert!(guarantees.deployment().contains("Galera"), "{}", guarantees.deployment());
    let e = guarantees.require(Level::Leased).unwrap_err();
    println!("{e}");
    assert!(e.message().contains("mysql.galera") && e.message().contains("certify"), "{e}");
    assert!(connect_attesting(&node, "mysql.galera").await.is_err());
    let client = node.client().await;
    client.acquire("a").await.unwrap().release().await.unwrap();
}

#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_with_an_authority_of_ones_own() {
    let certificates = fencelock_lab::Certificates::make().unwrap();
    let other = fencelock_lab::Certificates::make().unwrap();
    let db = My(MariaDb::start_with_tls(&certificates).unwrap());
    tls::with_an_authority_of_ones_own::<My>(&db, &certificates, &other).await;
}

#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_with_a_certificate_of_ones_own() {
    let certificates = fencelock_lab::Certificates::make().unwrap();
    let other = fencelock_lab::Certificates::make().unwrap();
    let db = My(MariaDb::start_with_client_tls(&certificates).unwrap());
    tls::with_a_certificate_of_ones_own::<My>(&db, &certificates, &other).await;
}
