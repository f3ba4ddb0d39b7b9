//! What waiting costs the nodes.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs, reason = "a test")]

mod common;

use common::{client, initialised, scripts};
use fencelock_lab::RedisNodes;
use std::time::Duration;
use tokio::task::JoinSet;

/// They queue in the client, and only the first of them asks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_waiters_of_one_client_ask_as_one() {
    let nodes = initialised(RedisNodes::start(3).unwrap()).await;
    let (holder, waiting) = (client(&nodes.addresses()).await, client(&nodes.addresses()).await);
    let guard = holder.named("hot").ttl(Duration::from_secs(60)).auto_renew(false).acquire().await.unwrap();
    let mut waits = JoinSet::new();
    for _ in 0..100 {
        let lock = waiting.named("hot").wait_forever();
        waits.spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() });
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let counts = || nodes.nodes().iter().map(scripts).collect::<Vec<_>>();
    let before = counts();
    tokio::time::sleep(Duration::from_secs(11)).await;
    for (before, after) in before.into_iter().zip(counts()) {
        let cost = after - before;
        println!("100 waiters of one client for 11 s: {cost} scripts");
        assert!(cost <= 12, "{cost} scripts: a few every 5 s are enough, however many wait");
    }
    guard.release().await.unwrap();
    while let Some(done) = waits.join_next().await {
        done.unwrap();
    }
}
