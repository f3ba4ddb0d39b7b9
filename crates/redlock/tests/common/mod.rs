//! What the tests have in common.

#![allow(dead_code, clippy::unwrap_used, clippy::indexing_slicing, reason = "each test uses its part of it")]

use fencelock_core::{Claim, EngineUrl, LockClient, LockGuard, LockName, Result, Terms};
use fencelock_lab::{Proxy, Redis, RedisNodes};
use fencelock_redlock::{RedlockConfig, RedlockLock, RedlockOperator};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// As patient as may be: a machine that stands still for a moment leaves no node without an answer.
pub(crate) fn config(addresses: &str) -> Result<RedlockConfig> {
    RedlockConfig::from_url(&EngineUrl::parse(&format!("redlock://{addresses}?request_timeout=1s"))?)
}

pub(crate) fn operator(nodes: &RedisNodes) -> RedlockOperator {
    RedlockOperator::new(config(&nodes.addresses()).unwrap()).unwrap()
}

pub(crate) async fn engine(addresses: &str) -> Result<Arc<RedlockLock>> {
    RedlockLock::connect(config(addresses)?).await
}

pub(crate) async fn client(addresses: &str) -> LockClient {
    LockClient::builder(engine(addresses).await.unwrap()).build().unwrap()
}

/// Nodes with their counters.
pub(crate) async fn initialised(nodes: RedisNodes) -> RedisNodes {
    assert!(operator(&nodes).init(0).await.unwrap());
    nodes
}

/// A proxy before each node, and the addresses through them.
pub(crate) fn proxies(nodes: &RedisNodes) -> (Vec<Proxy>, String) {
    let proxies: Vec<_> = nodes.nodes().iter().map(|node| Proxy::before(node.address()).unwrap()).collect();
    let addresses: Vec<_> = proxies.iter().map(|proxy| format!("127.0.0.1:{}", proxy.port())).collect();
    (proxies, addresses.join(","))
}

pub(crate) fn claim(name: &str, ttl: Duration) -> Claim {
    Terms::new(LockName::new(name).unwrap(), ttl).with_holder("test").mint().unwrap()
}

/// The keys of held locks that a node has.
pub(crate) fn locks(nodes: &RedisNodes, at: usize) -> usize {
    // One read of an answer is enough for these few keys; the counters would be too many for KEYS *.
    let answer = nodes.nodes()[at].command(&["KEYS", "*:lock:*"]).unwrap();
    answer.lines().filter(|line| line.contains(":lock:")).count()
}

/// Puts a node's hold in other words, with what is left of its time: the pattern's first match becomes `by`. True if there was one.
pub(crate) fn change_hold(nodes: &RedisNodes, at: usize, key: &str, pattern: &str, by: &str) -> bool {
    let script = "local held, times = (redis.call('get', KEYS[1]) or ''):gsub(ARGV[1], ARGV[2], 1)
        if times > 0 then redis.call('set', KEYS[1], held, 'KEEPTTL') end
        return times";
    nodes.nodes()[at].command(&["EVAL", script, "1", key, pattern, by]).unwrap() == ":1\r\n"
}

/// Makes a node forget the token of its hold, if it has noted one.
pub(crate) fn forget_token(nodes: &RedisNodes, at: usize, key: &str) -> bool {
    change_hold(nodes, at, key, "^(%d+ %x+) [1-9]%d* ", "%1 0 ")
}

/// Whether a node has noted a token with its hold.
pub(crate) fn has_token(nodes: &RedisNodes, at: usize, key: &str) -> bool {
    let hold = nodes.nodes()[at].command(&["GET", key]).unwrap();
    hold.split(' ').nth(2).is_some_and(|token| token != "0")
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
    until("renewed", Duration::from_secs(20), || {
        guards.iter().all(|(guard, before)| {
            assert!(guard.is_held(), "{} is lost", guard.name());
            guard.monitor().deadline() > *before
        })
    })
    .await;
}

/// How many scripts a node was sent.
pub(crate) fn scripts(redis: &Redis) -> u64 {
    let stats = redis.command(&["INFO", "commandstats"]).unwrap();
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

/// What `counts` says when it has said so for a while: whoever has a majority's answers goes on, and the other nodes
/// get the rest of it later.
pub(crate) async fn settled<T: PartialEq>(counts: impl Fn() -> T) -> T {
    let (started, mut last) = (Instant::now(), counts());
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = counts();
        if now == last {
            return now;
        }
        assert!(started.elapsed() < Duration::from_secs(20), "it does not come to rest");
        last = now;
    }
}

/// Names whose locks share a counter.
pub(crate) fn names_of_one_shard(count: usize) -> Vec<String> {
    let shard = |name: &str| xxhash_rust::xxh3::xxh3_64(name.as_bytes()) % 65_536;
    let wanted = shard("name 0");
    (0..).map(|number| format!("name {number}")).filter(|name| shard(name) == wanted).take(count).collect()
}
