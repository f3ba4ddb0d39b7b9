//! The leader on a host of its own is cut off from everybody, then healed. Needs root, for network namespaces.

#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs, reason = "a test")]

mod common;

use common::{History, LONG, TTL, client, queued};
use fencelock_lab::{Etcd, Network};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_is_isolated_while_one_holds_and_five_wait() {
    let network = Network::of(3).unwrap();
    let etcd = Etcd::start_in(&network).unwrap();
    let history = History::default();
    let holder = client(&etcd).await;
    let guard = holder.acquire("a").await.unwrap();
    let mut waiters = JoinSet::new();
    for place in 1..=5 {
        let (one, history) = (client(&etcd).await, history.clone());
        waiters.spawn(async move {
            let guard = one.acquire("a").await.unwrap();
            history.hold(place, &guard, tokio::time::sleep(Duration::from_millis(20))).await;
            // Not known is no loss of order: it is made good in the background.
            let _ = guard.release().await;
        });
        queued(&etcd, "a", place + 1).await;
    }
    let leader = etcd.leader().unwrap();
    let cut = Instant::now();
    network.isolate(leader).unwrap();
    history.hold(0, &guard, tokio::time::sleep(TTL * 3)).await;
    let stayed = guard.is_held();
    let released = guard.release().await.map_err(|e| e.kind());
    eprintln!("leader isolated: the holder stayed: {stayed}, released: {released:?}");
    while let Some(waiter) = tokio::time::timeout(LONG, waiters.join_next()).await.unwrap() {
        waiter.unwrap();
    }
    let served = cut.elapsed();
    network.heal(leader).unwrap();
    let held = history.checked();
    let order: Vec<_> = held.iter().map(|held| held.who).collect();
    eprintln!("all five served {served:?} after the cut, in the order {order:?}");
    assert!(order.is_sorted() && order.len() == 6, "{order:?}");
    let again = tokio::time::timeout(LONG, holder.acquire("a")).await.unwrap().unwrap();
    assert!(again.token().get() > held.last().unwrap().token);
    again.release().await.unwrap();
}
