//! What the tests have in common.

#![allow(dead_code, clippy::unwrap_used, clippy::indexing_slicing, reason = "each test uses its part of it")]

use fencelock_core::{ClientBuilder, EngineUrl, LockClient, LockGuard, Result};
use fencelock_lab::{Redis, connected};
use fencelock_redis::{RedisConfig, RedisLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) const SLACK: Duration = Duration::from_secs(15);

/// One that is patient unless the URL says otherwise: a machine that stands still for a moment leaves no request
/// without an answer.
pub(crate) async fn engine(url: &str) -> Result<Arc<RedisLock>> {
    let mut config = RedisConfig::from_url(&EngineUrl::parse(url)?)?;
    if !url.contains("request_timeout") {
        let patience = Duration::from_secs(5);
        config = config.with_request_timeout(patience).with_connect_timeout(patience);
    }
    RedisLock::connect(config).await
}

pub(crate) async fn builder(url: &str) -> Result<ClientBuilder> {
    Ok(LockClient::builder(engine(url).await?))
}

pub(crate) async fn client(url: &str) -> LockClient {
    connected(|| builder(url)).await.unwrap().build().unwrap()
}

pub(crate) fn url(redis: &Redis) -> String {
    format!("redis://{}", redis.address())
}

pub(crate) fn through(proxy: &fencelock_lab::Proxy) -> String {
    format!("redis://127.0.0.1:{}?request_timeout=1s&connect_timeout=1s", proxy.port())
}

/// What clients have sent: the commands that our scripts issue inside the server are left out.
pub(crate) fn sent(redis: &Redis) -> BTreeMap<String, u64> {
    const INSIDE: [&str; 20] = [
        "exists",
        "hmget",
        "hget",
        "mget",
        "zadd",
        "zscore",
        "zremrangebyscore",
        "pttl",
        "pexpire",
        "time",
        "get",
        "set",
        "hset",
        "del",
        "publish",
        "info",
        "hdel",
        "hlen",
        "pubsub",
        "pubsub|numsub",
    ];
    let stats = redis.command(&["INFO", "commandstats"]).unwrap();
    let calls = stats.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let calls = rest.split(',').next()?.parse().ok()?;
        (!INSIDE.contains(&name)).then(|| (name.to_owned(), calls))
    });
    calls.collect()
}

pub(crate) fn total(sent: &BTreeMap<String, u64>) -> u64 {
    sent.values().sum()
}

/// The connections that programs other than this question have open.
pub(crate) fn connections(redis: &Redis) -> usize {
    redis.command(&["CLIENT", "LIST"]).unwrap().matches("id=").count().saturating_sub(1)
}

/// Looks every few milliseconds, at most for `limit`.
pub(crate) async fn until(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until each has been renewed from now on. What is lost is never renewed again.
pub(crate) async fn renewed(guards: impl IntoIterator<Item = &LockGuard>) {
    let guards: Vec<_> = guards.into_iter().map(|guard| (guard, guard.monitor().deadline())).collect();
    until("renewed", SLACK * 2, || {
        guards.iter().all(|(guard, before)| {
            assert!(guard.is_held(), "{} is lost", guard.name());
            guard.monitor().deadline() > *before
        })
    })
    .await;
}

/// How many are in the queue of `name`.
pub(crate) fn queued(redis: &Redis, name: &str) -> usize {
    let keys = redis.command(&["KEYS", &format!("*:wait:{name}")]).unwrap();
    let Some(key) = keys.lines().nth(2) else { return 0 };
    let fields = redis.command(&["HKEYS", key]).unwrap();
    fields.lines().filter(|field| field.len() == 32).count()
}

/// The keys of held locks there are.
pub(crate) fn locks(redis: &Redis) -> usize {
    redis.command(&["KEYS", "*:lock:*"]).unwrap().lines().filter(|line| line.contains(":lock:")).count()
}

/// Waits until nothing of the client's is pending.
pub(crate) async fn drained(client: &LockClient) {
    until("nothing pending", SLACK * 4, || client.pending() == 0).await;
}
