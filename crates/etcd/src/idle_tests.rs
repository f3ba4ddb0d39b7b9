//! What many who wait ask the server meanwhile. In this crate, so that they look sooner than they otherwise do.

use crate::{EtcdConfig, EtcdLock};
use fencelock_core::LockClient;
use fencelock_lab::Etcd;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const WAITERS: usize = 100;
const MESSAGES: &str = "grpc_server_msg_received_total";

async fn client(etcd: &Etcd) -> LockClient {
    let config = EtcdConfig::new(etcd.endpoints());
    LockClient::new(fencelock_lab::connected(|| EtcdLock::connect(config.clone())).await.unwrap()).unwrap()
}

/// Those behind another of their own client ask all together as often as one alone.
#[tokio::test(flavor = "multi_thread")]
async fn many_who_wait_ask_as_seldom_as_a_few() {
    let etcd = Etcd::start().unwrap();
    let (holder, waiting) = (client(&etcd).await, client(&etcd).await);
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
    let before = etcd.metric(0, MESSAGES).unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let asked = etcd.metric(0, MESSAGES).unwrap() - before;
    // The first, and one of the others: each two requests, up to five times a second. One by one it would be a thousand.
    assert!(asked < 100.0, "{asked} messages in 2 s");
    held.release().await.unwrap();
    tokio::time::timeout(Duration::from_secs(60), waiters.join_all()).await.unwrap();
}
