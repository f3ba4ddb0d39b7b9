//! What the tests have in common.

#![allow(dead_code, clippy::unwrap_used, clippy::panic, reason = "each test uses its part of it")]

use fencelock_core::{AcquireOptions, EngineUrl, LockClient, LockGuard, Result, Wait};
use fencelock_zookeeper::zookeeper_client::Client;
use fencelock_zookeeper::{ZooKeeperConfig, ZooKeeperLock};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a loaded machine may add to anything that should be quick; never used where safety is asserted.
pub(crate) const SLACK: Duration = Duration::from_secs(20);

pub(crate) async fn engine(url: &str) -> Result<Arc<ZooKeeperLock>> {
    ZooKeeperLock::connect(ZooKeeperConfig::from_url(&EngineUrl::parse(url)?)?).await
}

/// A client with a session of its own, which asks for the session's ttl and waits for a minute.
pub(crate) async fn client(url: &str) -> LockClient {
    let engine = fencelock_lab::connected(|| engine(url)).await.unwrap();
    let ttl = engine.session_timeout();
    let options = AcquireOptions::default().with_ttl(ttl).with_wait(Wait::AtMost(Duration::from_secs(60)));
    LockClient::builder(engine).defaults(options).build().unwrap()
}

/// The client library alone, to look at the nodes.
pub(crate) async fn raw(hosts: &str) -> Client {
    Client::connector().with_session_timeout(Duration::from_secs(20)).connect(hosts).await.unwrap()
}

/// The claims' nodes of a lock whose name needs no encoding, under the default root.
pub(crate) async fn nodes(raw: &Client, name: &str) -> Vec<String> {
    let path = format!("/fencelock/{name}");
    raw.sync(&path).await.unwrap();
    raw.list_children(&path).await.unwrap_or_default()
}

pub(crate) async fn until<F: Future<Output = bool>>(what: &str, limit: Duration, mut holds: impl FnMut() -> F) {
    let started = Instant::now();
    while !holds().await {
        assert!(started.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) async fn within<T>(what: &str, limit: Duration, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(limit, work).await {
        Ok(done) => done,
        Err(_) => panic!("not within {limit:?}: {what}"),
    }
}

/// Begins to wait on a task of its own, and returns once the place is in the queue.
pub(crate) async fn in_line(
    raw: &Client,
    client: &LockClient,
    name: &str,
) -> tokio::task::JoinHandle<Result<LockGuard>> {
    let before = nodes(raw, name).await.len();
    let lock = client.named(name);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until("the waiter has a place", SLACK, || async { nodes(raw, name).await.len() > before }).await;
    waiting
}

/// Asks without pause whether the lock is still believed to be held, and tells when it was not any more.
pub(crate) fn watch(guard: &LockGuard) -> std::thread::JoinHandle<Instant> {
    let monitor = guard.monitor();
    std::thread::spawn(move || {
        loop {
            // Read before the question: from the first "no" on this is no later than the end.
            if !monitor.is_held() {
                return Instant::now();
            }
            std::thread::sleep(Duration::from_micros(500));
        }
    })
}
