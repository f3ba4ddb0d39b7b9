//! Endpoints that lead to more than one store: refused at connect, and as soon as it is seen.

#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs, reason = "a test")]

mod common;

use common::{LONG, client, config, connect, plain, until};
use fencelock_core::{ErrorKind, Level, RuleOutcome};
use fencelock_etcd::{EtcdConfig, EtcdLock};
use fencelock_lab::{Etcd, Mood, Proxy};
use std::time::Duration;

fn both(one: &Etcd, other: &Etcd) -> EtcdConfig {
    EtcdConfig::new(one.endpoints().into_iter().chain(other.endpoints()))
}

#[tokio::test(flavor = "multi_thread")]
async fn two_clusters_are_refused_at_connect() {
    let (one, other) = (Etcd::start().unwrap(), Etcd::start().unwrap());
    for config in [both(&one, &other), both(&other, &one)] {
        for _ in 0..5 {
            let e = EtcdLock::connect(config.clone()).await.unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Refused, "{e}");
            assert!(e.message().contains("cluster"), "{e}");
        }
    }
}

/// One is down at connect and turns out to be of another cluster: nobody locks any more, and what is held is released where it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_cluster_is_refused_when_it_is_seen() {
    let (one, other) = (Etcd::start().unwrap(), Etcd::start().unwrap());
    let way = Proxy::before(other.endpoint(0).unwrap()).unwrap();
    way.set(Mood::Refuse);
    let endpoints = [one.endpoints().remove(0), format!("127.0.0.1:{}", way.port())];
    let client = connect(EtcdConfig::new(endpoints)).await;
    let guard = client.named("held").ttl(Duration::from_secs(10)).acquire().await.unwrap();
    client.try_acquire("a").await.unwrap().unwrap().release().await.unwrap();
    way.set(Mood::Honest);
    until("it is seen", Duration::from_secs(30), async || {
        client.try_acquire("a").await.is_err_and(|e| e.kind() == ErrorKind::Refused)
    })
    .await;
    let e = client.acquire("a").await.unwrap_err();
    eprintln!("refused: {e}");
    assert_eq!(e.kind(), ErrorKind::Refused);
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(guard.is_held(), "what is held is kept alive where it is");
    guard.release().await.unwrap();
    assert!(common::keys(&other, "fencelock/").await.is_empty(), "nothing was written there");
}

/// The store behind the endpoint is replaced by an empty one with the same ids: seen by the mark that each store has.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_was_replaced_is_not_taken_for_the_old_one() {
    let mut etcd = Etcd::start().unwrap();
    let old = client(&etcd).await;
    old.acquire("a").await.unwrap().release().await.unwrap();
    etcd.replace().unwrap();
    // Another client begins there, so that a mark is there too.
    let new = client(&etcd).await;
    let guard = new.acquire("a").await.unwrap();
    until("it is seen", LONG, async || old.try_acquire("b").await.is_err_and(|e| e.kind() == ErrorKind::Refused)).await;
    guard.release().await.unwrap();
    assert_eq!(common::keys(&etcd, "fencelock/l/").await, [""; 0]);
}

/// The same while the client is idle: no stream of its own breaks, and no request fails, since the client library
/// connects anew by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_was_replaced_while_nothing_was_asked_is_seen() {
    let mut etcd = Etcd::start().unwrap();
    let old = client(&etcd).await;
    for acquired in 0..4 {
        old.acquire("a").await.unwrap().release().await.unwrap();
        drop(old.try_acquire(&format!("b{acquired}")).await.unwrap());
    }
    until("its lease is gone, and the stream of its keepalives", LONG, async || common::leases(&etcd).await == 0).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    etcd.replace().unwrap();
    let new = client(&etcd).await;
    assert_eq!(old.try_acquire("a").await.map(|a| a.is_some()).map_err(|e| e.kind()), Err(ErrorKind::Refused));
    new.acquire("a").await.unwrap().release().await.unwrap();
}

/// Two names of one member are one member; three members are three.
#[tokio::test(flavor = "multi_thread")]
async fn members_are_counted_by_id() {
    let etcd = Etcd::start_members(3).unwrap();
    let port = etcd.endpoint(0).unwrap().port();
    let rule = async |endpoints: Vec<String>, attested: &[&str]| {
        let attested = ["etcd.lease_fixes"].iter().chain(attested).copied();
        let engine = EtcdLock::connect(EtcdConfig::new(endpoints).with_attested(attested)).await?;
        Ok::<_, fencelock_core::Error>(fencelock_core::DistributedLock::guarantees(&*engine))
    };
    let aliases = vec![format!("127.0.0.1:{port}"), format!("localhost:{port}")];
    let found = rule(aliases.clone(), &[]).await.unwrap();
    assert!(found.rule_is("etcd.endpoints", RuleOutcome::Unknown), "{:?}", found.rules());
    assert_eq!(found.level(), Some(Level::Fenced));
    assert_eq!(rule(aliases, &["etcd.endpoints"]).await.unwrap().level(), Some(Level::Replicated));
    // The member itself says that the address is its own, and no balancer's.
    let alone = vec![format!("127.0.0.1:{port}")];
    assert!(rule(alone.clone(), &[]).await.unwrap().rule_is("etcd.endpoints", RuleOutcome::Refused));
    assert_eq!(rule(alone, &["etcd.endpoints"]).await.unwrap_err().kind(), ErrorKind::Refused);
    let found = rule(etcd.endpoints(), &[]).await.unwrap();
    assert_eq!(found.level(), Some(Level::Replicated), "{:?}", found.rules());
}

/// A member that was there at connect and is down at a later probe is what it was.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_down_changes_no_level() {
    let mut etcd = Etcd::start_members(3).unwrap();
    let client = connect(config(&etcd).with_attested(["etcd.lease_fixes"])).await;
    let before = client.guarantees().level();
    assert_eq!(before, Some(Level::Replicated));
    let follower = (0..3).find(|at| *at != etcd.leader().unwrap()).unwrap();
    etcd.kill(follower).unwrap();
    assert_eq!(client.probe().await.unwrap().level(), before);
    drop(plain(&etcd).await);
}
