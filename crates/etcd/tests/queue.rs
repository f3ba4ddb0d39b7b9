//! The queue: its order, what wakes a waiter, what becomes of a place that is gone.

#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs, reason = "a test")]

mod common;

use common::{LONG, client, connect, keys, plain, queued, revision, until};
use fencelock_core::ErrorKind;
use fencelock_etcd::EtcdConfig;
use fencelock_lab::Etcd;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;

/// 20 waiters of 5 clients, of which three in the middle give up.
#[tokio::test(flavor = "multi_thread")]
async fn first_come_first_served_when_some_give_up() {
    let etcd = Etcd::start().unwrap();
    let holder = client(&etcd).await;
    let guard = holder.named("a").ttl(LONG).acquire().await.unwrap();
    let mut clients = Vec::new();
    for _ in 0..5 {
        clients.push(client(&etcd).await);
    }
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = Vec::new();
    for place in 0..20 {
        let (lock, served) = (clients[place % 5].named("a").ttl(LONG), Arc::clone(&served));
        waiters.push(tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            served.lock().unwrap().push((place, guard.token()));
            guard.release().await.unwrap();
        }));
        queued(&etcd, "a", place + 2).await;
    }
    let given_up = [7, 10, 11];
    for place in given_up {
        waiters[place].abort();
    }
    queued(&etcd, "a", 18).await;
    guard.release().await.unwrap();
    for (place, waiter) in waiters.into_iter().enumerate() {
        let ended = tokio::time::timeout(LONG, waiter).await.unwrap();
        assert_eq!(ended.is_err(), given_up.contains(&place));
    }
    let served = served.lock().unwrap();
    let places: Vec<_> = served.iter().map(|(place, _)| *place).collect();
    let right: Vec<_> = (0..20).filter(|place| !given_up.contains(place)).collect();
    assert_eq!(places, right);
    assert!(served.is_sorted_by(|one, next| one.1 < next.1), "tokens: {served:?}");
}

/// A member counts the events that it sends: one release wakes one waiter of fifty. The holder, whose watch of
/// its own place may hear of the release too, is connected to another member.
#[tokio::test(flavor = "multi_thread")]
async fn one_release_is_one_event() {
    const EVENTS: &str = "etcd_debugging_mvcc_events_total";
    let etcd = Etcd::start_members(3).unwrap();
    let at = |member: usize| connect(EtcdConfig::new([etcd.endpoints().remove(member)]));
    let (holder, crowd) = (at(0).await, at(1).await);
    let guard = holder.named("a").ttl(Duration::from_secs(60)).acquire().await.unwrap();
    let mut waiters = JoinSet::new();
    for _ in 0..50 {
        let lock = crowd.named("a").ttl(Duration::from_secs(60));
        waiters.spawn(async move { lock.acquire().await.unwrap() });
    }
    queued(&etcd, "a", 51).await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let before = etcd.metric(1, EVENTS).unwrap_or(0.0);
    guard.release().await.unwrap();
    let next = tokio::time::timeout(LONG, waiters.join_next()).await.unwrap().unwrap().unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let events = etcd.metric(1, EVENTS).unwrap() - before;
    eprintln!("50 waiters, one release: {events} event(s) delivered to them");
    assert!((events - 1.0).abs() < 0.5, "{events} events for one release");
    assert_eq!(waiters.len(), 49);
    drop(waiters);
    next.release().await.unwrap();
}

/// A waiter whose lease is revoked while it is queued takes a new place, and is granted a live one.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_whose_session_dies_queues_anew() {
    let etcd = Etcd::start().unwrap();
    let (holder, waiter) = (client(&etcd).await, client(&etcd).await);
    let guard = holder.named("a").ttl(LONG).acquire().await.unwrap();
    let lock = waiter.named("a");
    let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
    queued(&etcd, "a", 2).await;
    let places = keys(&etcd, "fencelock/l/a/").await;
    let own = guard.evidence().get("key").unwrap().to_owned();
    let theirs = places.iter().find(|place| **place != own).unwrap().clone();
    let lease = plain(&etcd).await.get(theirs.as_str(), None).await.unwrap().kvs()[0].lease();
    plain(&etcd).await.lease_revoke(lease).await.unwrap();
    until("another place is taken", LONG, async || {
        let places = keys(&etcd, "fencelock/l/a/").await;
        places.len() == 2 && !places.contains(&theirs)
    })
    .await;
    assert!(!waiting.is_finished() && guard.is_held());
    guard.release().await.unwrap();
    let next = tokio::time::timeout(LONG, waiting).await.unwrap().unwrap();
    assert!(keys(&etcd, next.evidence().get("key").unwrap()).await.len() == 1, "granted a place that is not there");
    next.release().await.unwrap();
}

/// The history that a watch began in is compacted while the member is away: the waiter looks again.
#[tokio::test(flavor = "multi_thread")]
async fn a_compacted_watch_is_no_lost_wake_up() {
    let mut etcd = Etcd::start().unwrap();
    let (holder, waiter) = (client(&etcd).await, client(&etcd).await);
    let guard = holder.named("a").ttl(Duration::from_secs(60)).acquire().await.unwrap();
    let lock = waiter.named("a").ttl(Duration::from_secs(60));
    let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
    queued(&etcd, "a", 2).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    for _ in 0..10 {
        plain(&etcd).await.put("other", "x", None).await.unwrap();
    }
    let newest = revision(&etcd).await;
    plain(&etcd).await.compact(newest, None).await.unwrap();
    etcd.kill(0).unwrap();
    etcd.restart(0).unwrap();
    guard.release().await.unwrap();
    let next = tokio::time::timeout(Duration::from_secs(15), waiting).await.unwrap().unwrap();
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_look_like_paths_are_independent() {
    let etcd = Etcd::start().unwrap();
    let (one, other) = (client(&etcd).await, client(&etcd).await);
    let mut guards = Vec::new();
    for name in ["a", "a/b", "a%2Fb", "void", "a/", "meta", "l", "."] {
        guards.push(one.try_acquire(name).await.unwrap().unwrap_or_else(|| panic!("{name} is not free")));
        assert!(other.try_acquire(name).await.unwrap().is_none(), "{name}");
    }
    for guard in guards {
        guard.release().await.unwrap();
    }
    assert_eq!(keys(&etcd, "fencelock/l/").await, [""; 0]);
}

/// A try that finds the lock held writes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_contended_try_writes_nothing() {
    let etcd = Etcd::start().unwrap();
    let (holder, other) = (client(&etcd).await, client(&etcd).await);
    let guard = holder.named("a").ttl(LONG).acquire().await.unwrap();
    let before = revision(&etcd).await;
    for _ in 0..20 {
        assert!(other.try_acquire("a").await.unwrap().is_none());
    }
    let kind = other.named("a").wait_at_most(Duration::ZERO).acquire().await.unwrap_err().kind();
    assert_eq!((kind, revision(&etcd).await), (ErrorKind::Timeout, before));
    guard.release().await.unwrap();
}
