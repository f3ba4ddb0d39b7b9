//! A server that is shared: with other programs, other versions, other databases, and under an ACL.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test")]

mod common;

use common::{SLACK, client, engine, renewed, until, url};
use fencelock_core::{ErrorKind, LockName};
use fencelock_lab::Redis;
use std::collections::HashSet;
use std::time::Duration;

/// The key that our lock of this name would have, learnt from the server.
async fn key_of(redis: &Redis, name: &str) -> String {
    let guard = client(&url(redis)).await.acquire(name).await.unwrap();
    let keys = redis.command(&["KEYS", &format!("*:lock:{name}")]).unwrap();
    guard.release().await.unwrap();
    keys.lines().nth(2).unwrap().to_owned()
}

#[tokio::test]
async fn a_key_of_another_program_is_contention_and_stays() {
    let redis = Redis::start().unwrap();
    let client = client(&url(&redis)).await;
    let key = key_of(&redis, "a").await;
    // A plain string, as most lock libraries write; some that are nearly as ours; a hash; a list.
    let id = "0".repeat(32);
    let foreign: [&[&str]; 8] = [
        &["SET", &key, "theirs", "NX", "PX", "60000"],
        &["SET", &key, ""],
        &["SET", &key, &id],
        &["SET", &key, &format!("{id} many 1 0 1 h")],
        &["SET", &key, &format!("{id} 99999999999999999999999999 1 0 1 h")],
        &["SET", &key, &format!("{id} 7 1 0 9 short")],
        &["HSET", &key, "id", &id],
        &["LPUSH", &key, "x"],
    ];
    for write in foreign {
        redis.command(write).unwrap();
        let before = redis.command(&["DUMP", &key]);
        for _ in 0..3 {
            assert!(client.try_acquire("a").await.unwrap().is_none(), "{write:?}");
        }
        let given_up = client.named("a").wait_at_most(Duration::from_millis(800)).acquire().await.unwrap_err();
        assert_eq!(given_up.kind(), ErrorKind::Timeout, "{write:?}");
        assert!(client.inspect("a").await.unwrap().is_some(), "{write:?}");
        assert_eq!(client.list("").await.unwrap().len(), 1, "{write:?}");
        assert_eq!(client.force_release("a").await.unwrap_err().kind(), ErrorKind::Engine, "{write:?}");
        common::drained(&client).await;
        assert_eq!(redis.command(&["EXISTS", &key]).unwrap(), ":1\r\n", "{write:?} was deleted");
        assert_eq!(redis.command(&["DUMP", &key]).ok(), before.ok(), "{write:?} was changed");
        redis.command(&["DEL", &key]).unwrap();
    }
    // Its expiry is what we wait for.
    redis.command(&["SET", &key, "theirs", "NX", "PX", "700"]).unwrap();
    let guard = client.named("a").wait_at_most(SLACK).acquire().await.unwrap();
    guard.release().await.unwrap();
}

/// A hold that asked for a lock delay is freed by force: nobody's until that has passed.
#[tokio::test]
async fn a_forced_release_keeps_the_lock_delay() {
    let redis = Redis::start().unwrap();
    let (a, b) = (client(&url(&redis)).await, client(&url(&redis)).await);
    let (ttl, delay) = (Duration::from_secs(60), Duration::from_secs(4));
    let guard = a.named("a").ttl(ttl).lock_delay(delay).acquire().await.unwrap();
    let token = guard.token();
    let forced = std::time::Instant::now();
    let waiting = b.named("a").wait_at_most(SLACK * 2);
    let waiting = tokio::spawn(async move { (waiting.acquire().await.unwrap(), std::time::Instant::now()) });
    until("waiting", SLACK, || redis.command(&["PUBSUB", "CHANNELS"]).unwrap().contains(":to:")).await;
    assert!(b.force_release("a").await.unwrap());
    assert!(forced.elapsed() < delay, "the call itself does not wait");
    assert!(!b.force_release("a").await.unwrap(), "nobody holds it any more");
    assert!(b.inspect("a").await.unwrap().is_none() && b.list("").await.unwrap().is_empty());
    assert!(b.try_acquire("a").await.unwrap().is_none(), "closed");
    let (next, at) = waiting.await.unwrap();
    assert!(at - forced >= delay && at - forced < delay + SLACK / 2, "{:?}", at - forced);
    assert!(next.token() > token);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(next.is_held());
    next.release().await.unwrap();
    // What is left of the lease is the most, and without a delay it is free at once.
    let guard = a.named("a").ttl(Duration::from_millis(500)).lock_delay(Duration::from_secs(5)).auto_renew(false);
    let guard = guard.acquire().await.unwrap();
    assert!(b.force_release("a").await.unwrap());
    drop((guard, b.named("a").wait_at_most(SLACK * 2).acquire().await.unwrap()));
    let guard = a.named("b").ttl(ttl).acquire().await.unwrap();
    assert!(b.force_release("b").await.unwrap());
    b.try_acquire("b").await.unwrap().unwrap().release().await.unwrap();
    drop(guard);
}

#[tokio::test]
async fn ours_survives_what_others_do_to_their_locks() {
    let redis = Redis::start().unwrap();
    let client = client(&url(&redis)).await;
    let key = key_of(&redis, "a").await;
    let guard = client.named("a").ttl(Duration::from_secs(5)).acquire().await.unwrap();
    let delete = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
    assert_eq!(redis.command(&["EVAL", delete, "1", &key, "theirs"]).unwrap(), ":0\r\n");
    assert_eq!(redis.command(&["SET", &key, "theirs", "NX", "PX", "9000"]).unwrap(), "$-1\r\n");
    renewed([&guard]).await;
    guard.release().await.unwrap();
}

#[tokio::test]
async fn programs_with_another_layout_are_kept_apart() {
    let redis = Redis::start().unwrap();
    let first = client(&url(&redis)).await;
    assert_eq!(redis.command(&["GET", "fencelock:{layout}"]).unwrap(), "$1\r\n3\r\n");
    redis.command(&["SET", "fencelock:{layout}", "4"]).unwrap();
    let e = engine(&url(&redis)).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Refused, "{e}");
    assert!(e.message().contains("layout 4"), "{e}");
    // One that is connected learns of it when it connects anew.
    redis.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).unwrap();
    let refused = async {
        while first.try_acquire("a").await.err().map(|e| e.kind()) != Some(ErrorKind::Refused) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(SLACK, refused).await.unwrap();
    let apart = engine(&format!("{}?prefix=other", url(&redis))).await;
    assert!(apart.is_ok());
}

/// The way over that the changelog says: each shard had a counter of its own before, some perhaps ahead of the clock.
#[tokio::test]
async fn from_layout_2_one_comes_over_with_the_largest_of_the_counters() {
    let redis = Redis::start().unwrap();
    redis.command(&["SET", "fencelock:{layout}", "2"]).unwrap();
    for (shard, last) in [(543, "8000000000000000"), (17, "1764550000000000")] {
        redis.command(&["SET", &format!("fencelock:{{{shard}}}:fence"), last]).unwrap();
    }
    assert_eq!(engine(&url(&redis)).await.unwrap_err().kind(), ErrorKind::Refused);
    redis.command(&["SET", "fencelock:fence", "8000000000000000"]).unwrap();
    redis.command(&["DEL", "fencelock:{layout}"]).unwrap();
    let guard = client(&url(&redis)).await.acquire("a").await.unwrap();
    assert_eq!(guard.token().get(), 8_000_000_000_000_001);
}

#[tokio::test]
async fn prefixes_and_databases_lock_apart() {
    let redis = Redis::start().unwrap();
    let mut guards = Vec::new();
    for place in ["", "?prefix=other", "/1", "/1?prefix=other"] {
        let client = client(&format!("{}{place}", url(&redis))).await;
        guards.push(client.try_acquire("a").await.unwrap().unwrap());
        assert!(client.try_acquire("a").await.unwrap().is_none());
        let listed = client.list("").await.unwrap();
        assert_eq!(listed.len(), 1, "{listed:?}");
    }
    let e = engine(&format!("{}/99", url(&redis))).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{e}");
}

#[tokio::test]
async fn names_of_every_kind_are_distinct() {
    let redis = Redis::start().unwrap();
    let client = client(&url(&redis)).await;
    let long = "x".repeat(512);
    let names = [
        "a", "A", "a/b", "a{b}", "{a}b", "{}", "}{", "a:b", "a b", "a*", "a?", "[a]", "a\\", "ключ", "鍵", "🔒", &long,
    ];
    let mut guards = Vec::new();
    for name in names {
        guards.push(client.try_acquire(name).await.unwrap().expect(name));
    }
    for name in names {
        assert!(client.try_acquire(name).await.unwrap().is_none(), "{name}");
        let listed = client.list(name).await.unwrap();
        assert!(listed.iter().any(|(found, _)| found == &LockName::new(name).unwrap()), "{name}");
        assert!(listed.iter().all(|(found, _)| found.as_str().starts_with(name)), "{name}: {listed:?}");
    }
    let listed: HashSet<_> = client.list("").await.unwrap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(listed.len(), names.len());
}

#[tokio::test]
async fn users_passwords_and_what_the_acl_must_allow() {
    let redis = Redis::start().unwrap();
    let acl = |words: &[&str]| redis.command(words).unwrap();
    // What the README says is enough.
    let enough = "on >s3cret ~fencelock:* &fencelock:* -@all +eval +evalsha +hello +select +role +setnx +get +set \
                  +mget +exists +hmget +hget +hset +hdel +hlen +pttl +pexpire +time +del +publish +subscribe +unsubscribe +scan +info \
                  +config|get +pubsub|numsub +ping +zadd +zscore +zremrangebyscore";
    let words: Vec<_> = ["ACL", "SETUSER", "app"].into_iter().chain(enough.split_whitespace()).collect();
    assert_eq!(acl(&words), "+OK\r\n");
    acl(&["ACL", "SETUSER", "poor", "on", ">p", "~other:*", "+@all"]);
    let at = |who: &str| format!("redis://{who}@{}", redis.address());
    let app = client(&at("app:s3cret")).await;
    let guard = app.named("a").ttl(Duration::from_secs(5)).acquire().await.unwrap();
    let waiter = client(&at("app:s3cret")).await.named("a").wait_at_most(SLACK);
    let waiter = tokio::spawn(async move { waiter.acquire().await });
    renewed([&guard]).await;
    assert_eq!(app.list("").await.unwrap().len(), 1);
    let channels = || redis.command(&["PUBSUB", "CHANNELS"]).unwrap().contains(":to:");
    until("the waiter listens", SLACK, channels).await;
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();

    for wrong in ["app:wrong", "nobody:s3cret", "poor:p"] {
        let e = engine(&at(wrong)).await.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Denied, "{wrong}: {e}");
        let shown = format!("{e} {e:?}");
        assert!(!shown.contains("s3cret") && !shown.contains("wrong@"), "{shown}");
        assert!(!shown.contains("not reached"), "{shown}");
    }
    // Taken away while it is connected: denied, and not waited for.
    acl(&["ACL", "SETUSER", "app", "-evalsha", "-eval"]);
    let e = app.named("b").wait_at_most(SLACK * 2).acquire().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Denied, "{e}");

    acl(&["CONFIG", "SET", "requirepass", "top"]);
    assert_eq!(engine(&url(&redis)).await.unwrap_err().kind(), ErrorKind::Denied);
    assert!(engine(&at(":top")).await.is_ok(), "the default user");
}

/// A permission that is missing for one command of a script leaves no lock without an end, and none that nobody has.
#[tokio::test]
async fn an_acl_with_a_gap_leaves_no_lock() {
    let redis = Redis::start().unwrap();
    redis.command(&["ACL", "SETUSER", "app", "on", ">p", "~*", "&*", "+@all"]).unwrap();
    let app = client(&format!("redis://app:p@{}", redis.address())).await;
    for (missing, again) in [("-set", "+set"), ("-mget", "+mget"), ("-time", "+time")] {
        redis.command(&["ACL", "SETUSER", "app", missing]).unwrap();
        assert_eq!(app.try_acquire("a").await.unwrap_err().kind(), ErrorKind::Denied, "{missing}");
        redis.command(&["ACL", "SETUSER", "app", again]).unwrap();
        assert_eq!(common::locks(&redis), 0, "{missing}");
    }
    // The key and its end are written by one command.
    let key = key_of(&redis, "a").await;
    redis.command(&["ACL", "SETUSER", "app", "-pexpire"]).unwrap();
    let guard = app.named("a").ttl(Duration::from_secs(30)).acquire().await.unwrap();
    assert!(redis.command(&["PTTL", &key]).unwrap().trim_start_matches(':').trim().parse::<i64>().unwrap() > 0);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_full_server_takes_no_lock_and_lets_the_old_ones_go() {
    let redis = Redis::start_with(["--save", "", "--maxmemory-policy", "noeviction"]).unwrap();
    let client = client(&url(&redis)).await;
    let guard = client.named("a").ttl(Duration::from_secs(5)).acquire().await.unwrap();
    redis.command(&["CONFIG", "SET", "maxmemory", "1mb"]).unwrap();
    let e = client.try_acquire("b").await.unwrap_err();
    assert!(e.kind() == ErrorKind::Unavailable && e.message().contains("maxmemory"), "{e}");
    // Renewals need no memory.
    renewed([&guard]).await;
    guard.release().await.unwrap();
    common::drained(&client).await;
    assert_eq!(common::locks(&redis), 0);
    redis.command(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    client.try_acquire("b").await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_replica_takes_no_lock() {
    let master = Redis::start().unwrap();
    let port = master.address().port().to_string();
    let replica = Redis::start_with(["--save", "", "--replicaof", "127.0.0.1", &port]).unwrap();
    let e = engine(&url(&replica)).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    // One that becomes a replica is met later.
    let client = client(&url(&master)).await;
    let other = Redis::start().unwrap();
    master.command(&["REPLICAOF", "127.0.0.1", &other.address().port().to_string()]).unwrap();
    let e = client.try_acquire("a").await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    master.command(&["REPLICAOF", "NO", "ONE"]).unwrap();
    client.named("a").wait_at_most(SLACK).acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn nobody_there_is_told_within_the_bound() {
    let started = std::time::Instant::now();
    let port = fencelock_lab::free_port();
    let e = engine(&format!("redis://127.0.0.1:{port}")).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable);
    assert!(started.elapsed() < SLACK, "{:?}", started.elapsed());
}
