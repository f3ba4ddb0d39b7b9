//! The gate: both rules, on a real server.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test")]

mod common;

use common::{client, url};
use fencelock_core::{Admission, ErrorKind, FencingToken, Gate, Stale};
use fencelock_lab::{Redis, RedisCluster};
use fencelock_redis::{Effect, RedisConfig, RedisGate, RedisPass};

async fn enter<'g>(gate: &'g RedisGate, token: u64) -> Result<RedisPass<'g>, Stale> {
    gate.enter((), "stock/shoes", FencingToken::new(token)).await.unwrap().admitted()
}

async fn both_rules(gate: &RedisGate) {
    let (read, write) =
        (Effect::new("return redis.call('get', KEYS[1])"), Effect::new("return redis.call('set', KEYS[1], ARGV[1])"));
    let old = enter(gate, 9).await.unwrap();
    let key = [old.key("left")];
    assert_eq!(old.run::<Option<i64>>(&read, &key, &[]).await.unwrap(), Admission::Admitted(None));
    // Ten is more than nine, although not as text.
    let new = enter(gate, 10).await.unwrap();
    assert_eq!(enter(gate, 9).await.unwrap_err().newest, FencingToken::new(10), "rule 1");
    let stale = old.run::<String>(&write, &key, &["late"]).await.unwrap();
    assert_eq!(stale, Admission::Stale(Stale::new(FencingToken::new(10))), "rule 2: it read before the other entered");
    assert_eq!(new.run::<String>(&write, &key, &["5"]).await.unwrap(), Admission::Admitted("OK".to_owned()));
    let again = enter(gate, 10).await.unwrap();
    assert_eq!(again.run::<i64>(&read, &key, &[]).await.unwrap(), Admission::Admitted(5));
    let largest = enter(gate, FencingToken::MAX.get()).await.unwrap();
    assert!(enter(gate, FencingToken::MAX.get() - 1).await.is_err(), "exact beyond 2^53");
    assert_eq!(largest.run::<i64>(&read, &key, &[]).await.unwrap(), Admission::Admitted(5));
}

#[tokio::test]
async fn both_rules_hold_on_one_server() {
    let redis = Redis::start().unwrap();
    let (host, port) = (redis.address().ip().to_string(), redis.address().port());
    let gate = RedisGate::connect(RedisConfig::standalone(host, port)).await.unwrap();
    both_rules(&gate).await;
    let invalid = gate.enter((), "", FencingToken::new(1)).await.unwrap_err();
    assert_eq!(invalid.kind(), ErrorKind::InvalidName);
    let pass = enter(&gate, FencingToken::MAX.get()).await.unwrap();
    let wrong = pass.run::<i64>(&Effect::new("return redis.call('nonsense')"), &[], &[]).await;
    assert!(wrong.is_err());
    let nothing = pass.run::<()>(&Effect::new("-- no more"), &[], &[]).await.unwrap();
    assert_eq!(nothing, Admission::Admitted(()));
    // Emptied: nobody who entered before may go on unseen.
    redis.command(&["FLUSHALL"]).unwrap();
    redis.command(&["SCRIPT", "FLUSH"]).unwrap();
    let forgotten = pass.run::<i64>(&Effect::new("return 1"), &[], &[]).await.unwrap_err();
    assert!(forgotten.message().contains("enter again"), "{forgotten}");
}

#[tokio::test]
async fn both_rules_hold_in_a_cluster() {
    let cluster = RedisCluster::start().unwrap();
    let nodes = cluster.addresses().into_iter().map(|node| (node.ip().to_string(), node.port()));
    let gate = RedisGate::connect(RedisConfig::cluster(nodes)).await.unwrap();
    both_rules(&gate).await;
}

/// Whatever an effect says, it is not the server that says it.
#[tokio::test]
async fn an_effect_that_may_have_run_is_not_sent_again() {
    let redis = Redis::start().unwrap();
    let gate = RedisGate::connect(RedisConfig::standalone("127.0.0.1", redis.address().port())).await.unwrap();
    let pass = enter(&gate, 9).await.unwrap();
    for (times, end) in [
        "return redis.error_reply('TRYAGAIN once more')",
        "return {redis.error_reply('NOSCRIPT once more')}",
        "error({err = 'TRYAGAIN once more'})",
        "error({err = 'NOSCRIPT once more'})",
        "error({err = 'MOVED 1 127.0.0.1:1'})",
        "error('CLUSTERDOWN')",
        "return redis.call('nonsense')",
        "return redis.error_reply('READONLY You are wrong')",
    ]
    .into_iter()
    .enumerate()
    {
        let effect = Effect::new(&format!("redis.call('incr', KEYS[1]) {end}"));
        assert!(pass.run::<i64>(&effect, &[pass.key("times")], &[]).await.is_err(), "{end}");
        let read = Effect::new("return redis.call('get', KEYS[1])");
        let done = pass.run::<usize>(&read, &[pass.key("times")], &[]).await.unwrap();
        assert_eq!(done, Admission::Admitted(times + 1), "{end}");
    }
}

#[tokio::test]
async fn no_two_resources_have_a_key_in_common() {
    let redis = Redis::start().unwrap();
    let gate = RedisGate::connect(RedisConfig::standalone("127.0.0.1", redis.address().port())).await.unwrap();
    let mut keys = std::collections::HashSet::new();
    for (resource, part) in [("a", "b:c"), ("a:b", "c"), ("a%3Ab", "c"), ("a", "b%3Ac"), ("a:b:c", ""), ("a", "b")] {
        let pass = gate.enter((), resource, FencingToken::new(1)).await.unwrap().admitted().unwrap();
        let key = pass.key(part);
        let bare = key.split_once("}:").unwrap().1.to_owned();
        assert!(keys.insert(bare), "{resource} and {part}: {key}");
    }
}

/// A holder that was robbed reads, the next one writes, the first one writes: refused.
#[tokio::test]
async fn no_update_is_lost_under_a_stolen_lock() {
    let redis = Redis::start().unwrap();
    let (a, b) = (client(&url(&redis)).await, client(&url(&redis)).await);
    let gate = RedisGate::connect(RedisConfig::standalone("127.0.0.1", redis.address().port())).await.unwrap();
    let add = Effect::new("return redis.call('incrby', KEYS[1], ARGV[1])");
    let mut acknowledged = 0;
    for _ in 0..20 {
        let first = a.acquire("a").await.unwrap();
        let pass = gate.enter((), "sum", first.token()).await.unwrap().admitted().unwrap();
        let key = [pass.key("total")];
        assert!(b.force_release("a").await.unwrap());
        let second = b.acquire("a").await.unwrap();
        let other = gate.enter((), "sum", second.token()).await.unwrap().admitted().unwrap();
        acknowledged += 1;
        assert_eq!(other.run::<i64>(&add, &key, &["1"]).await.unwrap(), Admission::Admitted(acknowledged));
        assert!(pass.run::<i64>(&add, &key, &["100"]).await.unwrap().is_stale());
        second.release().await.unwrap();
        let _ = first.release().await;
    }
}
