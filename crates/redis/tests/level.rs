//! What a deployment gives is what it gives now: asked anew at each reconnect.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs, reason = "a test")]

mod common;

use common::{SLACK, client, engine, until, url};
use fencelock_core::{Level, LockClient, RuleOutcome};
use fencelock_lab::{Redis, RedisSentinel};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Cuts its connections; whoever uses the client then connects anew.
fn cut(redis: &Redis) {
    // One that listens, since an acquire met the release before it, is of the other type.
    for kind in ["normal", "pubsub"] {
        redis.command(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]).unwrap();
    }
}

async fn reaches(client: &LockClient, level: Option<Level>) {
    let _ = client.named("use").wait_at_most(Duration::from_secs(5)).acquire().await;
    until("the level is found anew", SLACK * 2, || client.guarantees().level() == level).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_changed_later_are_found_at_the_reconnect() {
    let redis = Redis::start_durable().unwrap();
    let client = client(&url(&redis)).await;
    assert_eq!(client.guarantees().level(), Some(Level::Fenced));
    for (name, bad, good, level) in [
        ("appendfsync", "everysec", "always", Some(Level::Advisory)),
        ("appendonly", "no", "yes", Some(Level::Advisory)),
        ("no-appendfsync-on-rewrite", "yes", "no", Some(Level::Advisory)),
    ] {
        redis.command(&["CONFIG", "SET", name, bad]).unwrap();
        cut(&redis);
        reaches(&client, level).await;
        redis.command(&["CONFIG", "SET", name, good]).unwrap();
        cut(&redis);
        reaches(&client, Some(Level::Fenced)).await;
    }
    // Held locks may be evicted: not even the lowest level.
    redis.command(&["CONFIG", "SET", "maxmemory", "100mb"]).unwrap();
    redis.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).unwrap();
    cut(&redis);
    reaches(&client, None).await;
}

/// What was attested is refused at connect, and later, if the server says otherwise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_the_server_hides_can_be_attested() {
    let redis = Redis::start_durable().unwrap();
    let attesting = || async {
        let url = fencelock_core::EngineUrl::parse(&url(&redis)).unwrap();
        let config = fencelock_redis::RedisConfig::from_url(&url).unwrap().with_attested(["redis.persistence"]);
        fencelock_redis::RedisLock::connect(config).await
    };
    let client = LockClient::builder(attesting().await.unwrap()).build().unwrap();
    assert_eq!(client.guarantees().level(), Some(Level::Fenced));
    redis.command(&["CONFIG", "SET", "appendfsync", "everysec"]).unwrap();
    cut(&redis);
    reaches(&client, Some(Level::Advisory)).await;
    assert!(client.guarantees().rule_is("redis.persistence", RuleOutcome::Refused));
    let e = attesting().await.unwrap_err();
    assert!(e.message().contains("everysec"), "{e}");
    redis.command(&["ACL", "SETUSER", "default", "-config|get"]).unwrap();
    let hidden = attesting().await.unwrap();
    let hidden = LockClient::builder(hidden).build().unwrap().guarantees();
    assert!(hidden.rule_is("redis.persistence", RuleOutcome::Attested));
    assert!(hidden.rule_is("redis.rewrite", RuleOutcome::Unknown));
}

/// Passes everything on, but not what asks for `INFO` while it is told so.
fn deaf_to_info(target: SocketAddr) -> (u16, Arc<AtomicBool>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (port, deaf) = (listener.local_addr().unwrap().port(), Arc::new(AtomicBool::new(false)));
    let deafness = Arc::clone(&deaf);
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (Ok(client), Ok(server)) = (client, TcpStream::connect(target)) else { return };
            let pump = |mut from: TcpStream, mut to: TcpStream, deaf: Option<Arc<AtomicBool>>| {
                std::thread::spawn(move || {
                    let mut buffer = [0; 16 * 1024];
                    while let Ok(read @ 1..) = from.read(&mut buffer) {
                        let asks = buffer[..read].windows(6).any(|bytes| bytes == b"\nINFO\r");
                        if asks && deaf.as_ref().is_some_and(|deaf| deaf.load(Ordering::SeqCst)) {
                            continue;
                        }
                        if to.write_all(&buffer[..read]).is_err() {
                            return;
                        }
                    }
                    let _ = to.shutdown(std::net::Shutdown::Both);
                });
            };
            pump(client.try_clone().unwrap(), server.try_clone().unwrap(), Some(Arc::clone(&deafness)));
            pump(server, client, None);
        }
    });
    (port, deaf)
}

/// The old answers do not count any more, and it is asked again until there are new ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_probe_that_fails_proves_nothing_and_is_made_again() {
    let redis = Redis::start_durable().unwrap();
    let (port, deaf) = deaf_to_info(redis.address());
    let client = client(&format!("redis://127.0.0.1:{port}?request_timeout=1s&connect_timeout=1s")).await;
    assert_eq!(client.guarantees().level(), Some(Level::Fenced));
    deaf.store(true, Ordering::SeqCst);
    cut(&redis);
    reaches(&client, None).await;
    assert!(client.guarantees().rule_is("redis.persistence", RuleOutcome::Unknown));
    deaf.store(false, Ordering::SeqCst);
    until("asked again", SLACK * 3, || client.guarantees().level() == Some(Level::Fenced)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_was_seen_once_is_not_forgotten() {
    let master = Redis::start_durable().unwrap();
    let client = client(&url(&master)).await;
    assert_eq!(client.guarantees().level(), Some(Level::Fenced));
    let port = master.address().port().to_string();
    let replica = Redis::start_with(["--save", "", "--replicaof", "127.0.0.1", &port]).unwrap();
    let replicas = || master.command(&["INFO", "replication"]).unwrap().contains("connected_slaves:1");
    until("replicated", SLACK * 2, replicas).await;
    cut(&master);
    reaches(&client, Some(Level::Advisory)).await;
    replica.command(&["REPLICAOF", "NO", "ONE"]).unwrap();
    until("alone again", SLACK * 2, || !replicas()).await;
    cut(&master);
    client.named("use").wait_at_most(SLACK).acquire().await.unwrap().release().await.unwrap();
    let asked = client.probe().await.unwrap();
    assert!(asked.rule_is("redis.failover", RuleOutcome::Refused), "{asked:?}");
    // A client that has seen none sees its traces: it is not known, and can be attested.
    let new = common::client(&url(&master)).await.guarantees();
    assert!(new.rule_is("redis.failover", RuleOutcome::Unknown), "{new:?}");
    assert_eq!(new.level(), Some(Level::Advisory));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_under_sentinels_is_not_taken_for_one_that_is_alone() {
    let mut set = RedisSentinel::start_with(Duration::from_secs(60)).unwrap();
    for at in [1, 2] {
        set.servers_mut()[at].server_mut().kill();
    }
    let master = &set.servers()[0];
    let replicas = || master.command(&["INFO", "replication"]).unwrap().contains("connected_slaves:0");
    until("alone", SLACK * 2, replicas).await;
    let found = client(&url(master)).await.guarantees();
    assert!(found.rule_is("redis.failover", RuleOutcome::Refused), "{found:?}");
    let rule = found.rules().iter().find(|rule| rule.id() == "redis.failover").unwrap();
    assert!(rule.reason().contains("Sentinels"), "{}", rule.reason());
    let e = engine(&format!("redis://{}", set.sentinels()[0])).await.unwrap_err();
    assert!(e.message().contains("redis+sentinel"), "{e}");
}
