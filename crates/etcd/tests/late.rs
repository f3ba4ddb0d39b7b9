//! Requests that arrive after their undo.

#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs, reason = "a test")]

mod common;

use common::{client, connect, keys, until};
use fencelock_etcd::EtcdConfig;
use fencelock_lab::{Etcd, Mood, Proxy};
use std::time::Duration;

/// An acquire hangs on the way to one member and is repeated at another. When the lock has been given back,
/// the first request arrives: its id is void, and the lock stays free.
#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_that_arrives_after_the_release_takes_nothing() {
    let etcd = Etcd::start().unwrap();
    let ways = [(); 2].map(|()| Proxy::before(etcd.endpoint(0).unwrap()).unwrap());
    let endpoints = ways.iter().map(|way| format!("127.0.0.1:{}", way.port()));
    let config = EtcdConfig::new(endpoints).with_request_timeout(Duration::from_millis(1_200));
    let (one, other) = (connect(config).await, client(&etcd).await);
    // A long ttl, so that the session's own keepalives do not find the way blocked first.
    let lock = |name: &str| one.named(name).ttl(Duration::from_secs(30));
    lock("warm-up").acquire().await.unwrap().release().await.unwrap();
    let mut delayed = 0;
    for round in 0..6 {
        let (name, way) = (format!("lock-{round}"), &ways[round % 2]);
        way.set(Mood::Hold);
        let guard = lock(&name).acquire().await.unwrap();
        let held = guard.token();
        guard.release().await.unwrap();
        let voids = keys(&etcd, "fencelock/v/").await.len();
        delayed += usize::from(voids > delayed);
        way.set(Mood::Honest);
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(keys(&etcd, &format!("fencelock/l/{name}/")).await, [""; 0], "the late request took the lock");
        let next = other.try_acquire(&name).await.unwrap().unwrap();
        assert!(next.token() > held);
        next.release().await.unwrap();
    }
    eprintln!("{delayed} of 6 acquires had a copy that arrived late");
    assert!(delayed >= 2);
    drop(one);
    until("void ids go with their lease", Duration::from_secs(25), async || {
        keys(&etcd, "fencelock/v/").await.is_empty()
    })
    .await;
}

/// Each request takes 300 ms to arrive: what was acknowledged counts from before it left.
#[tokio::test(flavor = "multi_thread")]
async fn time_counts_from_before_the_keepalive() {
    let etcd = Etcd::start().unwrap();
    let way = Proxy::before(etcd.endpoint(0).unwrap()).unwrap();
    let one = connect(EtcdConfig::new([format!("127.0.0.1:{}", way.port())])).await;
    let (ttl, late) = (Duration::from_secs(6), Duration::from_millis(300));
    way.set(Mood::DelayRequests(late));
    let guard = one.named("a").ttl(ttl).acquire().await.unwrap();
    let granted = guard.remaining();
    assert!(granted <= ttl - late * 2, "{granted:?} left after two requests of {late:?} each");
    let (mut most, mut renewals) = (Duration::ZERO, 0);
    let mut last = granted;
    while renewals < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let left = guard.remaining();
        assert!(!left.is_zero());
        renewals += usize::from(left > last);
        most = if renewals > 0 { most.max(left) } else { most };
        last = left;
    }
    eprintln!("of {ttl:?} {granted:?} were left at the grant and {most:?} at most after a keepalive");
    assert!(most <= ttl - late);
    way.set(Mood::Honest);
    guard.release().await.unwrap();
}
