//! Deployments that change under a client: found by probes, and refused where that is asked for.

use fencelock::{ErrorKind, Level, LockClient, LossReason, OnDegraded, RuleOutcome};
use fencelock_lab::{Postgres, Redis};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(20);

async fn strict(url: String) -> LockClient {
    fencelock::builder(url).require(Level::Fenced).on_degraded(OnDegraded::Refuse).connect().await.unwrap()
}

fn set(redis: &Redis, name: &str, value: &str) {
    assert!(redis.command(&["CONFIG", "SET", name, value]).unwrap().starts_with("+OK"));
}

async fn until_refused(client: &LockClient) {
    for _ in 0..200 {
        match client.try_acquire("another").await {
            Err(e) if e.kind() == ErrorKind::Refused => return,
            _ => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
    assert!(client.guarantees().level() < Some(Level::Fenced), "nothing was found");
}

#[tokio::test]
async fn redis_that_is_made_forgetful_is_found_by_itself_and_taken_back_when_mended() {
    let redis = Redis::start_durable().unwrap();
    let client = strict(format!("redis://{}?reprobe=1s", redis.address())).await;
    let held = client.acquire("a").await.unwrap();
    set(&redis, "appendfsync", "everysec");
    assert_eq!(tokio::time::timeout(LONG, held.lost()).await.unwrap(), LossReason::Degraded);
    let e = client.acquire("b").await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Refused);
    assert!(e.message().contains("AOF everysec") && e.message().contains("appendfsync always"), "{e}");
    assert_eq!(client.guarantees().level(), Some(Level::Advisory), "what is told follows");
    set(&redis, "appendfsync", "always");
    client.probe().await.unwrap();
    client.acquire("b").await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn redis_that_evicts_is_found_at_the_reconnect() {
    let redis = Redis::start_durable().unwrap();
    let client = strict(format!("redis://{}", redis.address())).await;
    client.acquire("a").await.unwrap().release().await.unwrap();
    set(&redis, "maxmemory", "100mb");
    set(&redis, "maxmemory-policy", "allkeys-lru");
    redis.command(&["CLIENT", "KILL", "SKIPME", "yes"]).unwrap();
    until_refused(&client).await;
    assert_eq!(client.guarantees().level(), None);
}

/// What was attested when nobody could see it counts no more once it can be seen.
#[tokio::test]
async fn what_was_attested_and_is_seen_not_to_be_so_comes_out_refused() {
    let redis = Redis::start_durable().unwrap();
    set(&redis, "appendfsync", "everysec");
    let user = ["ACL", "SETUSER", "app", "on", ">pass", "~*", "&*", "+@all", "-config"];
    assert!(redis.command(&user).unwrap().starts_with("+OK"));
    let attested = "attest=redis.persistence,redis.rewrite";
    let client = strict(format!("redis://app:pass@{}?{attested}", redis.address())).await;
    assert!(client.guarantees().rule_is("redis.persistence", RuleOutcome::Attested));
    assert!(redis.command(&["ACL", "SETUSER", "app", "+config"]).unwrap().starts_with("+OK"));
    let found = client.probe().await.unwrap();
    assert!(found.rule_is("redis.persistence", RuleOutcome::Refused), "{found:#?}");
    assert_eq!(client.acquire("a").await.unwrap_err().kind(), ErrorKind::Refused);
}

#[tokio::test]
async fn a_standby_that_is_added_to_postgres_is_found() {
    let postgres = Postgres::start_durable().unwrap();
    let client = strict(format!("{}?reprobe=1s", postgres.url())).await;
    let held = client.acquire("a").await.unwrap();
    let _standby = postgres.start_standby("away", &[]).unwrap();
    assert_eq!(tokio::time::timeout(LONG, held.lost()).await.unwrap(), LossReason::Degraded);
    let e = client.acquire("b").await.unwrap_err();
    assert!(e.kind() == ErrorKind::Refused && e.message().contains("postgres.standbys"), "{e}");
}
