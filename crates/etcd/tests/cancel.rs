//! Acquires given up at any instant leave nothing.

#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs, reason = "a test")]

mod common;

use common::{LONG, TTL, client, keys, leases, until};
use fencelock_lab::Etcd;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Nobody is blocked meanwhile, and after a ttl neither key nor lease is left.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_cancelled_acquires_leave_nothing() {
    let etcd = Etcd::start().unwrap();
    let (mut longest, mut granted) = (Duration::ZERO, 0);
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(client(&etcd).await);
    }
    let other = client(&etcd).await;
    for round in 0..50 {
        let mut tasks = JoinSet::new();
        for at in 0..20 {
            let lock = clients[at % 4].named(["a", "b"][at % 2]);
            let within = Duration::from_micros(fastrand::u64(0..8_000));
            tasks.spawn(async move { tokio::time::timeout(within, lock.acquire()).await.is_ok() });
        }
        if round % 5 == 0 {
            let asked = Instant::now();
            other.named("a").ttl(LONG).acquire().await.unwrap().release().await.unwrap();
            longest = longest.max(asked.elapsed());
        }
        while let Some(ended) = tasks.join_next().await {
            granted += usize::from(ended.unwrap());
        }
    }
    eprintln!("1,000 cancelled acquires ({granted} came through); another waited {longest:?} at most");
    assert!(longest < Duration::from_secs(20));
    let idle = Instant::now();
    let left = TTL + Duration::from_secs(15);
    until("no place is left", left, async || keys(&etcd, "fencelock/l/").await.is_empty()).await;
    until("nothing is pending", LONG, async || clients.iter().all(|one| one.pending() == 0)).await;
    until("no void id and no lease is left", LONG, async || {
        keys(&etcd, "fencelock/").await == ["fencelock/meta"] && leases(&etcd).await == 0
    })
    .await;
    eprintln!("nothing left after {:?}", idle.elapsed());
}
