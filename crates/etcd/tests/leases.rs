//! Leases: shared, kept alive together, revoked when idle, and as long as the server grants.

#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs, reason = "a test")]

mod common;

use common::{LONG, TTL, client, keys, leases, renewed, until};
use fencelock_lab::{Etcd, EtcdSettings};
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread")]
async fn claims_with_the_same_terms_share_a_lease_which_goes_when_idle() {
    let etcd = Etcd::start().unwrap();
    let one = client(&etcd).await;
    let mut guards = Vec::new();
    for name in 0..30 {
        guards.push(one.acquire(&format!("lock {name}")).await.unwrap());
    }
    assert_eq!(leases(&etcd).await, 1);
    let evidence: Vec<_> = guards.iter().map(|guard| guard.evidence().get("lease").unwrap().to_owned()).collect();
    assert!(evidence.iter().all(|lease| *lease == evidence[0]));
    let delayed = one.named("other").lock_delay(Duration::from_secs(1)).acquire().await.unwrap();
    let longer = one.named("longer").ttl(TTL * 3).acquire().await.unwrap();
    assert_eq!(leases(&etcd).await, 3);
    // One keepalive renews them all.
    renewed(&guards).await;
    drop((guards, delayed, longer));
    let idle = Instant::now();
    until("idle leases are revoked", TTL * 3 + Duration::from_secs(10), async || leases(&etcd).await == 0).await;
    eprintln!("idle leases were revoked after {:?}", idle.elapsed());
    assert_eq!(keys(&etcd, "fencelock/").await, ["fencelock/meta"]);
    // And a new one is made when it is needed.
    one.acquire("again").await.unwrap().release().await.unwrap();
}

/// Warm, an acquire is one transaction and a release another; nothing else is asked.
#[tokio::test(flavor = "multi_thread")]
async fn a_warm_acquire_is_one_round_trip() {
    let etcd = Etcd::start().unwrap();
    let one = client(&etcd).await;
    let calls = |method: &str| {
        let name = format!("grpc_server_handled_total{{grpc_code=\"OK\",grpc_method=\"{method}\"");
        etcd.metric(0, &name).unwrap_or(0.0)
    };
    one.acquire("warm-up").await.unwrap().release().await.unwrap();
    let before = ["Txn", "Range", "LeaseGrant", "Put"].map(calls);
    for _ in 0..20 {
        one.acquire("a").await.unwrap().release().await.unwrap();
    }
    let after = ["Txn", "Range", "LeaseGrant", "Put"].map(calls);
    let spent: Vec<_> = after.iter().zip(before).map(|(after, before)| after - before).collect();
    eprintln!("20 acquires and releases: {spent:?} calls of Txn, Range, LeaseGrant, Put");
    assert_eq!(spent, [40.0, 0.0, 0.0, 0.0]);
}

/// With etcd's own timers the least ttl is 2 s: it is granted, and told.
#[tokio::test(flavor = "multi_thread")]
async fn the_least_ttl_of_the_server_counts() {
    let settings = EtcdSettings::default().with_arguments(["--election-timeout", "3000"]);
    let etcd = Etcd::start_with(&settings).unwrap();
    let one = client(&etcd).await;
    let guard = one.named("a").ttl(Duration::from_millis(700)).acquire().await.unwrap();
    let left = guard.remaining();
    eprintln!("asked for 700 ms, granted {left:?}");
    assert!(left > Duration::from_secs(3) && left <= Duration::from_secs(5), "{left:?}");
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

/// A revoked lease ends what is held by it, and the next acquire gets another.
#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_lease_is_loss() {
    let etcd = Etcd::start().unwrap();
    let one = client(&etcd).await;
    let guard = one.named("a").ttl(Duration::from_secs(30)).acquire().await.unwrap();
    let lease: i64 = guard.evidence().get("lease").unwrap().parse().unwrap();
    let revoked = Instant::now();
    common::plain(&etcd).await.lease_revoke(lease).await.unwrap();
    let reason = tokio::time::timeout(LONG, guard.lost()).await.unwrap();
    eprintln!("told {reason:?} {:?} after the lease was revoked; its ttl was 30 s", revoked.elapsed());
    assert!(revoked.elapsed() < Duration::from_secs(10), "told before a keepalive would have shown it");
    // Not held by anybody, and the client goes on with a new lease.
    let next = one.named("a").ttl(Duration::from_secs(30)).acquire().await.unwrap();
    assert_ne!(next.evidence().get("lease"), guard.evidence().get("lease"));
    next.release().await.unwrap();
}

/// A lease that is used for a moment now and then is not idle: it is the same all the time.
#[tokio::test(flavor = "multi_thread")]
async fn short_uses_keep_a_lease() {
    let etcd = Etcd::start().unwrap();
    let one = client(&etcd).await;
    let mut found = std::collections::BTreeSet::new();
    let end = Instant::now() + TTL * 3;
    while Instant::now() < end {
        let guard = one.acquire("a").await.unwrap();
        found.insert(guard.evidence().get("lease").unwrap().to_owned());
        guard.release().await.unwrap();
        tokio::time::sleep(TTL / 10).await;
    }
    assert_eq!(found.len(), 1, "another lease was made in {:?}", TTL * 3);
}
