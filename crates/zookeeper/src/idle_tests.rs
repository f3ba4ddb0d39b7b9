//! What many who wait ask the server meanwhile. In this crate, so that they look sooner than they otherwise do.

use crate::{ZooKeeperConfig, ZooKeeperLock};
use fencelock_core::{EngineUrl, LockClient};
use fencelock_lab::ZooKeeper;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const WAITERS: usize = 100;

async fn client(server: &ZooKeeper) -> LockClient {
    let url = EngineUrl::parse(&format!("zookeeper://{}", server.address())).unwrap();
    let config = ZooKeeperConfig::from_url(&url).unwrap();
    LockClient::new(fencelock_lab::connected(|| ZooKeeperLock::connect(config.clone())).await.unwrap()).unwrap()
}

fn received(server: &ZooKeeper) -> f64 {
    let answer = server.ask("srvr").unwrap();
    answer.lines().find_map(|line| line.strip_prefix("Received: ")?.trim().parse().ok()).unwrap()
}

/// Those behind another of their own client ask all together as often as one alone.
#[tokio::test(flavor = "multi_thread")]
async fn many_who_wait_ask_as_seldom_as_a_few() {
    let server = ZooKeeper::start().unwrap();
    let (holder, waiting) = (client(&server).await, client(&server).await);
    let held = holder.acquire("a").await.unwrap();
    let mut waiters = JoinSet::new();
    for _ in 0..WAITERS {
        let lock = waiting.named("a").wait_forever();
        waiters.spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() });
    }
    let end = Instant::now() + Duration::from_secs(60);
    while holder.inspect("a").await.unwrap().unwrap().waiters < u64::try_from(WAITERS).ok() {
        assert!(Instant::now() < end, "they do not come to their places");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Each asks once who the holder is.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let before = received(&server);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let asked = received(&server) - before;
    // The first, and one of the others: each three requests, up to five times a second. One by one it would be a thousand.
    assert!(asked < 120.0, "{asked} packets in 2 s");
    held.release().await.unwrap();
    tokio::time::timeout(Duration::from_secs(60), waiters.join_all()).await.unwrap();
}
