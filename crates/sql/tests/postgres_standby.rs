//! PostgreSQL with streaming standbys, and through TLS.
#![cfg(feature = "postgres")]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests")]

mod server;

use fencelock_core::{DistributedLock as _, EngineUrl, ErrorKind, Level, LockClient, RuleOutcome};
use fencelock_lab::Postgres;
use fencelock_sql::SqlLock;
use fencelock_sql::postgres::PostgresConfig;
use server::*;
use std::sync::Arc;

async fn streams(primary: &Pg) {
    until("the standby streams", async || {
        primary.number("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'").await > 0
    })
    .await;
}

async fn connect_attesting(db: &Pg, rule: &str) -> fencelock_core::Result<Arc<SqlLock>> {
    SqlLock::postgres(PostgresConfig::from_url(&EngineUrl::parse(&db.url())?)?.with_attested([rule])).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_asynchronous_standby_is_refused_above_advisory() {
    let primary = Pg(Postgres::start_durable().unwrap());
    let client = primary.client().await;
    let guard = client.named("a").ttl(ms(60_000)).acquire().await.unwrap();
    let standby = Pg(primary.0.start_standby("away", &[]).unwrap());
    streams(&primary).await;

    let guarantees = primary.engine().await.guarantees();
    assert_eq!(guarantees.level(), Some(Level::Advisory));
    let e = guarantees.require(Level::Leased).unwrap_err();
    println!("{e}");
    assert!(e.message().contains("asynchronous") && e.message().contains("postgres.standbys"), "{e}");
    assert!(guarantees.deployment().contains("1 standbys, 0 of them synchronous"), "{}", guarantees.deployment());
    assert!(connect_attesting(&primary, "postgres.standbys").await.is_err(), "what was disproved is not attested");
    primary.run("CREATE ROLE app LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO app").await;
    let app = Pg::connect(&primary.url().replace("test@", "app@")).await.unwrap();
    let e = app.guarantees().require(Level::Leased).unwrap_err();
    assert!(e.message().contains("pg_monitor"), "{e}");

    // A standby gives no locks: who connects there is told so, and is served once it is promoted.
    until("replayed", async || standby.number("SELECT count(*) FROM fencelock_locks").await > 0).await;
    let engine = standby.engine().await;
    assert_eq!(engine.guarantees().level(), None);
    assert!(engine.guarantees().rule_is("postgres.primary", RuleOutcome::Refused));
    let there = LockClient::new(engine).unwrap();
    let e = there.try_acquire("b").await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    assert!(e.to_string().contains("no writes"), "{e}");
    drop(primary);
    standby.0.promote().unwrap();
    until("served", async || there.try_acquire("b").await.is_ok()).await;
    assert!(there.guarantees().level() >= Some(Level::Leased), "probed anew: {:?}", there.guarantees().level());
    assert_eq!(there.inspect("a").await.unwrap().unwrap().token, guard.token(), "it had come in time");
    assert!(there.try_acquire("a").await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn synchronous_standbys_keep_what_was_acknowledged() {
    let mut primary = Pg(Postgres::start_with(["synchronous_standby_names=FIRST 1 (*)"]).unwrap());
    let standby = Pg(primary.0.start_standby("near", &[]).unwrap());
    streams(&primary).await;
    let engine = primary.engine().await;
    assert_eq!(engine.guarantees().level(), Some(Level::Fenced), "{:?}", engine.guarantees().require(Level::Fenced));
    let attested = connect_attesting(&primary, "postgres.failover").await.unwrap();
    assert_eq!(attested.guarantees().level(), Some(Level::Replicated));
    assert!(attested.guarantees().rule_is("postgres.failover", RuleOutcome::Attested));

    // Whatever was acknowledged is there after the fail-over: held, and with its token.
    let client = LockClient::new(engine).unwrap();
    let mut held = Vec::new();
    for n in 0..20 {
        held.push(client.named(&format!("{n}")).ttl(ms(60_000)).acquire().await.unwrap());
    }
    primary.kill();
    standby.0.promote().unwrap();
    // It is alone now, and its own commits would wait for a standby of its own.
    let there = LockClient::new(Pg::connect(&standby.url()).await.unwrap()).unwrap();
    for (n, guard) in held.iter().enumerate() {
        assert_eq!(there.inspect(&format!("{n}")).await.unwrap().unwrap().token, guard.token());
        assert!(there.try_acquire(&format!("{n}")).await.unwrap().is_none(), "{n} is held");
    }
    assert!(there.force_release("7").await.unwrap());
    assert!(there.try_acquire("7").await.unwrap().unwrap().token() > held[7].token());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_standby_that_is_not_synchronous_or_away_counts() {
    let primary = Pg(Postgres::start_with(["fsync=on", "synchronous_standby_names=near"]).unwrap());
    let _near = Pg(primary.0.start_standby("near", &[]).unwrap());
    streams(&primary).await;
    let far = Pg(primary.0.start_standby("far", &[]).unwrap());
    until("two", async || primary.number("SELECT count(*) FROM pg_stat_replication").await == 2).await;
    let e = primary.engine().await.guarantees().require(Level::Leased).unwrap_err();
    assert!(e.message().contains("some standbys are asynchronous"), "{e}");
    drop(far);
    until("one", async || primary.number("SELECT count(*) FROM pg_stat_replication").await == 1).await;
    assert_eq!(primary.engine().await.guarantees().level(), Some(Level::Fenced));
    // Sessions of our own wait for the standby, whatever the database's default is.
    primary.run("ALTER DATABASE postgres SET synchronous_commit = local").await;
    assert_eq!(primary.engine().await.guarantees().level(), Some(Level::Fenced));
    primary.run("SELECT pg_create_physical_replication_slot('far')").await;
    let e = primary.engine().await.guarantees().require(Level::Leased).unwrap_err();
    assert!(e.message().contains("slot"), "{e}");
}

#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_with_an_authority_of_ones_own() {
    let certificates = fencelock_lab::Certificates::make().unwrap();
    let other = fencelock_lab::Certificates::make().unwrap();
    let db = Pg(Postgres::start_with_tls(&certificates).unwrap());
    tls::with_an_authority_of_ones_own::<Pg>(&db, &certificates, &other).await;
}

#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_with_a_certificate_of_ones_own() {
    let certificates = fencelock_lab::Certificates::make().unwrap();
    let other = fencelock_lab::Certificates::make().unwrap();
    let db = Pg(Postgres::start_with_client_tls(&certificates).unwrap());
    tls::with_a_certificate_of_ones_own::<Pg>(&db, &certificates, &other).await;
}
