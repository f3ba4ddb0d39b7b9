//! A Cluster in motion: slots that move, nodes that hang, and one that is down.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs, reason = "a test")]

mod common;

use common::{SLACK, client, drained, engine, renewed};
use fencelock_core::{Attempt, Claim, DistributedLock, ErrorKind, FencingToken, Gate as _, Grant, LockName, Terms};
use fencelock_lab::{Redis, RedisCluster};
use fencelock_redis::{RedisConfig, RedisGate, RedisLock};
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::xxh3_64;

const TTL: Duration = Duration::from_secs(5);

fn cluster_url(cluster: &RedisCluster, seed: usize) -> String {
    format!("redis+cluster://{}?request_timeout=1500ms&connect_timeout=1500ms", cluster.addresses()[seed])
}

/// The slot of a name's keys, and the master that has it, by its place.
fn place(cluster: &RedisCluster, name: &str) -> (String, usize) {
    let key = format!("fencelock:{{{}}}:lock:{name}", xxh3_64(name.as_bytes()) % 1_024);
    let slot = cluster.nodes()[0].command(&["CLUSTER", "KEYSLOT", &key]).unwrap();
    let slot = slot.trim_start_matches(':').trim().to_owned();
    let at = slot.parse::<usize>().unwrap() / 16_384_usize.div_ceil(3);
    (slot, at)
}

/// Names whose keys lie in the shard of the first.
fn neighbours(number: usize) -> Vec<String> {
    let shard = |name: &str| xxh3_64(name.as_bytes()) % 1_024;
    let names = (0..).map(|at| format!("name {at}"));
    let first = shard("name 0");
    names.filter(|name| shard(name) == first).take(number).collect()
}

/// A name on each master.
fn one_each(cluster: &RedisCluster) -> [String; 3] {
    [0, 1, 2].map(|at| (0..).map(|n| format!("lock {n}")).find(|name| place(cluster, name).1 == at).unwrap())
}

fn claim(name: &str) -> Claim {
    Terms::new(LockName::new(name).unwrap(), Duration::from_secs(60)).mint().unwrap()
}

async fn granted(engine: &RedisLock, claim: &Claim) -> Option<Grant> {
    match engine.try_acquire(claim).await {
        Ok(Attempt::Granted(grant)) => Some(grant),
        _ => None,
    }
}

/// Between `SETSLOT MIGRATING` and `SETSLOT NODE` a slot's keys are partly here and partly there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_and_undo_work_while_the_slot_is_moved() {
    let cluster = RedisCluster::start().unwrap();
    let engine = engine(&cluster_url(&cluster, 0)).await.unwrap();
    let client = client(&cluster_url(&cluster, 0)).await;
    let names = neighbours(9);
    let (slot, from) = place(&cluster, &names[0]);
    let (source, target) = (&cluster.nodes()[from], &cluster.nodes()[(from + 1) % 3]);
    let id = |node: &Redis| node.command(&["CLUSTER", "MYID"]).unwrap().lines().nth(1).unwrap().to_owned();
    let (source_id, target_id) = (id(source), id(target));
    // Held there and here, plainly and with a request unanswered; undone there, here and nowhere.
    let claims: Vec<_> = names.iter().map(|name| claim(name)).collect();
    let mut grants = Vec::new();
    for claim in &claims[..6] {
        grants.push(granted(&engine, claim).await.unwrap());
    }
    target.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_id]).unwrap();
    source.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_id]).unwrap();
    let port = target.address().port().to_string();
    let migrate = |key: &str| {
        let moved = source.command(&["MIGRATE", "127.0.0.1", &port, key, "0", "1000"]).unwrap();
        assert_eq!(moved, "+OK\r\n", "{key}");
    };
    for at in [0, 2, 4] {
        migrate(&format!("fencelock:{{{}}}:lock:{}", xxh3_64(names[at].as_bytes()) % 1_024, names[at]));
    }
    for unanswered in [2, 3, 4, 5, 6] {
        drop(claims[unanswered].request());
    }
    let started = Instant::now();
    for grant in grants.drain(..4) {
        grant.lease.release().await.unwrap();
    }
    for claim in &claims[4..7] {
        engine.abandon(claim).await.unwrap();
    }
    assert!(started.elapsed() < SLACK, "{:?}", started.elapsed());
    for name in &names {
        assert!(client.inspect(name).await.unwrap().is_none(), "{name}");
    }
    // What has several keys waits until they are together.
    let waiting = client.named(&names[7]).wait_at_most(SLACK * 4);
    let waiting = tokio::spawn(async move { waiting.acquire().await });
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(!waiting.is_finished());
    let keys = source.command(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]).unwrap();
    keys.lines().filter(|line| line.starts_with("fencelock")).for_each(migrate);
    for node in [target, source, &cluster.nodes()[(from + 2) % 3]] {
        node.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &target_id]).unwrap();
    }
    waiting.await.unwrap().unwrap().release().await.unwrap();
    for dead in &claims[2..7] {
        assert!(granted(&engine, dead).await.is_none(), "a dead id took the lock after the move");
    }
    drained(&client).await;
}

/// Acquires wait for as long as a request may take; a release beside them waits for none of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_a_slot_to_be_moved_holds_up_nobody() {
    let cluster = RedisCluster::start().unwrap();
    let patient = format!("redis+cluster://{}?request_timeout=6s&connect_timeout=6s", cluster.addresses()[0]);
    let engine = engine(&patient).await.unwrap();
    let names = neighbours(12);
    let (slot, from) = place(&cluster, &names[0]);
    let (source, target) = (&cluster.nodes()[from], &cluster.nodes()[(from + 1) % 3]);
    let id = |node: &Redis| node.command(&["CLUSTER", "MYID"]).unwrap().lines().nth(1).unwrap().to_owned();
    let held = claim(&names[0]);
    let grant = granted(&engine, &held).await.unwrap();
    target.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(source)]).unwrap();
    source.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(target)]).unwrap();
    let mut waits = tokio::task::JoinSet::new();
    for name in &names[1..] {
        let (engine, claim) = (std::sync::Arc::clone(&engine), claim(name));
        waits.spawn(async move { engine.try_acquire(&claim).await.map(drop) });
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let started = Instant::now();
    grant.lease.release().await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    // What waits is answered when the move is given up, those that wait for each other too.
    source.command(&["CLUSTER", "SETSLOT", &slot, "STABLE"]).unwrap();
    target.command(&["CLUSTER", "SETSLOT", &slot, "STABLE"]).unwrap();
    while let Some(tried) = waits.join_next().await {
        tried.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_one_node_is_enough_to_find_the_others() {
    let cluster = RedisCluster::start().unwrap();
    for seed in 0..6 {
        let client = client(&cluster_url(&cluster, seed)).await;
        for name in one_each(&cluster) {
            client.acquire(&name).await.unwrap().release().await.unwrap();
        }
    }
    let e = engine(&format!("redis://{}", cluster.addresses()[1])).await.unwrap_err();
    assert!(e.kind() == ErrorKind::InvalidConfig && e.message().contains("redis+cluster"), "{e}");
    let alone = Redis::start().unwrap();
    let e = engine(&format!("redis+cluster://{}", alone.address())).await.unwrap_err();
    assert!(e.kind() == ErrorKind::InvalidConfig && e.message().contains("redis://"), "{e}");
}

/// One master is frozen and, for the time of the test, not replaced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_hangs_disturbs_no_other() {
    let cluster = RedisCluster::start_with(Duration::from_secs(60)).unwrap();
    let (holder, waiter) = (client(&cluster_url(&cluster, 1)).await, client(&cluster_url(&cluster, 1)).await);
    let names = one_each(&cluster);
    let ttl = Duration::from_secs(60);
    let mut guards = Vec::new();
    for name in &names {
        guards.push(Some(holder.named(name).ttl(ttl).acquire().await.unwrap()));
    }
    let wait = |name: &str| {
        let lock = waiter.named(name).ttl(ttl).wait_at_most(SLACK * 4);
        tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            (Instant::now(), guard)
        })
    };
    let waits = [wait(&names[0]), wait(&names[2])];
    let hung = wait(&names[1]);
    for (at, name) in names.iter().enumerate() {
        common::until("it waits", SLACK, || common::queued(&cluster.nodes()[at], name) == 1).await;
    }
    cluster.nodes()[1].server().stop();
    // Asked again and again, so that what its silence does to others would be seen.
    let asking = {
        let (client, name) = (holder.clone(), names[1].clone());
        tokio::spawn(async move {
            loop {
                let _ = client.named(&name).ttl(TTL).try_acquire().await;
            }
        })
    };
    let other = format!("{} too", names[0]);
    let other = (0..).map(|n| format!("{other} {n}")).find(|name| place(&cluster, name).1 == 0).unwrap();
    let end = Instant::now() + Duration::from_secs(4);
    while Instant::now() < end {
        // Each within its own time, and never by way of a map that is being asked for.
        let guard = holder.named(&other).ttl(TTL).try_acquire().await.unwrap().unwrap();
        guard.release().await.unwrap();
    }
    // Their connections are cut: waiters elsewhere are subscribed again all the same.
    for at in [0, 2] {
        cluster.nodes()[at].command(&["CLIENT", "KILL", "TYPE", "pubsub"]).unwrap();
    }
    let listens = |at: usize| cluster.nodes()[at].command(&["PUBSUB", "CHANNELS"]).unwrap().contains(":to:");
    common::until("subscribed again", SLACK, || listens(0) && listens(2)).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    for (at, wait) in [0, 2].into_iter().zip(waits) {
        let sent = Instant::now();
        guards[at].take().unwrap().release().await.unwrap();
        let (got, guard) = wait.await.unwrap();
        assert!(got - sent < Duration::from_secs(3), "{:?}: not heard, but found by the safety check", got - sent);
        guard.release().await.unwrap();
    }
    let e = holder.try_acquire(&names[1]).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable);
    // New clients come in too.
    let new = client(&cluster_url(&cluster, 2)).await;
    new.acquire(&other).await.unwrap().release().await.unwrap();
    let nodes = cluster.addresses().into_iter().map(|node| (node.ip().to_string(), node.port()));
    let gate = RedisGate::connect(RedisConfig::cluster(nodes)).await.unwrap();
    assert!(gate.enter((), &other, FencingToken::new(1)).await.unwrap().admitted().is_ok());
    asking.abort();
    hung.abort();
    cluster.nodes()[1].server().cont();
    guards[1].take().unwrap().release().await.unwrap();
    drained(&holder).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_down_is_told_and_comes_back() {
    let mut cluster = RedisCluster::start().unwrap();
    let client = client(&cluster_url(&cluster, 0)).await;
    let names = one_each(&cluster);
    client.acquire(&names[0]).await.unwrap().release().await.unwrap();
    // A master and its replica: a part of the slots is nobody's, and the others serve none.
    for at in [1, 4] {
        cluster.nodes_mut()[at].server_mut().kill();
    }
    let told = async {
        loop {
            let tried = Instant::now();
            let outcome = client.named(&names[0]).ttl(TTL).try_acquire().await;
            assert!(tried.elapsed() < Duration::from_millis(1_500) + SLACK, "{:?}", tried.elapsed());
            if let Err(e) = outcome {
                assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
                if e.message().contains("Cluster is down") {
                    return;
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(SLACK * 4, told).await.unwrap();
    for at in [1, 4] {
        cluster.nodes_mut()[at].restart().unwrap();
    }
    for name in &names {
        let guard = client.named(name).ttl(TTL).wait_at_most(SLACK * 6).acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    drained(&client).await;
}

/// The permissions that the crate's page lists, everywhere those and no others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_permissions_that_the_page_lists_are_enough() {
    let page = include_str!("../README.md");
    let listed = page.split_once("An ACL user needs").unwrap().1.split_once("Without").unwrap().0;
    let listed = listed.split(['`', ' ', ',', ';', '\n']).filter(|word| word.starts_with('+'));
    let words = ["ACL", "SETUSER", "app", "on", ">p", "~fencelock:*", "&fencelock:*", "-@all"];
    let words: Vec<_> = words.into_iter().chain(listed).collect();
    let cluster = RedisCluster::start().unwrap();
    for node in cluster.nodes() {
        assert_eq!(node.command(&words).unwrap(), "+OK\r\n", "{words:?}");
    }
    let url = format!("redis+cluster://app:p@{}", cluster.addresses()[4]);
    let (client, other) = (client(&url).await, client(&format!("{url}?wait_replicas=1")).await);
    assert_eq!(client.guarantees().level(), Some(fencelock_core::Level::Advisory));
    for name in one_each(&cluster) {
        let guard = client.named(&name).ttl(TTL).acquire().await.unwrap();
        let waiting = other.named(&name).wait_at_most(SLACK * 2);
        let waiting = tokio::spawn(async move { waiting.acquire().await });
        renewed([&guard]).await;
        assert_eq!(client.list(&name).await.unwrap().len(), 1);
        guard.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
    }
    // In a slot that is being moved, what is not at the source is asked for at the target.
    let name = &neighbours(1)[0];
    let (slot, from) = place(&cluster, name);
    let (source, target) = (&cluster.nodes()[from], &cluster.nodes()[(from + 1) % 3]);
    let id = |node: &Redis| node.command(&["CLUSTER", "MYID"]).unwrap().lines().nth(1).unwrap().to_owned();
    target.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(source)]).unwrap();
    source.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(target)]).unwrap();
    assert!(client.inspect(name).await.unwrap().is_none());
    let asked = target.command(&["INFO", "commandstats"]).unwrap();
    assert!(asked.contains("cmdstat_asking"), "{asked}");
    target.command(&["ACL", "SETUSER", "app", "-asking"]).unwrap();
    let e = client.inspect(name).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Denied, "{e}");
}

/// Whoever has the slot knows who listens there, and after a move who listens there then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_handed_on_wherever_its_slot_is() {
    const LONG: Duration = Duration::from_secs(60);
    let cluster = RedisCluster::start().unwrap();
    let (holder, waiter) = (client(&cluster_url(&cluster, 0)).await, client(&cluster_url(&cluster, 1)).await);
    let queued = async |name: &str, at: usize| {
        let key = format!("fencelock:{{{}}}:wait:{name}", xxh3_64(name.as_bytes()) % 1_024);
        let is_queued = || cluster.nodes()[at].command(&["EXISTS", &key]).unwrap() == ":1\r\n";
        common::until("it is in the queue", SLACK, is_queued).await;
    };
    let wait = |name: &str| {
        let lock = waiter.named(name).ttl(LONG).wait_at_most(LONG);
        tokio::spawn(async move { (lock.acquire().await.unwrap(), Instant::now()) })
    };
    for (at, name) in one_each(&cluster).iter().enumerate() {
        let guard = holder.named(name).ttl(LONG).acquire().await.unwrap();
        let waiting = wait(name);
        queued(name, at).await;
        let (token, released) = (guard.token(), Instant::now());
        guard.release().await.unwrap();
        let (next, had) = waiting.await.unwrap();
        assert!(had - released < Duration::from_secs(3) && next.token() > token, "{:?}", had - released);
        next.release().await.unwrap();
    }
    let name = &neighbours(1)[0];
    let (slot, from) = place(&cluster, name);
    let (source, to) = (&cluster.nodes()[from], (from + 1) % 3);
    let target = &cluster.nodes()[to];
    let guard = holder.named(name).ttl(LONG).acquire().await.unwrap();
    let waiting = wait(name);
    queued(name, from).await;
    let id = |node: &Redis| node.command(&["CLUSTER", "MYID"]).unwrap().lines().nth(1).unwrap().to_owned();
    target.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(source)]).unwrap();
    source.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(target)]).unwrap();
    let port = target.address().port().to_string();
    let keys = source.command(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]).unwrap();
    for key in keys.lines().filter(|line| line.starts_with("fencelock")) {
        assert_eq!(source.command(&["MIGRATE", "127.0.0.1", &port, key, "0", "1000"]).unwrap(), "+OK\r\n", "{key}");
    }
    for node in [target, source, &cluster.nodes()[(from + 2) % 3]] {
        node.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &id(target)]).unwrap();
    }
    // It listens where the slot was, so it is passed over, and looks by itself.
    let token = guard.token();
    guard.release().await.unwrap();
    let (next, _) = tokio::time::timeout(SLACK * 2, waiting).await.unwrap().unwrap();
    assert!(next.token() > token && next.is_held());
    assert_eq!(holder.inspect(name).await.unwrap().unwrap().token, next.token());
    let waiting = {
        let lock = holder.named(name).ttl(LONG).wait_at_most(LONG);
        tokio::spawn(async move { (lock.acquire().await.unwrap(), Instant::now()) })
    };
    queued(name, to).await;
    let released = Instant::now();
    next.release().await.unwrap();
    let (next, had) = waiting.await.unwrap();
    assert!(had - released < Duration::from_secs(3), "{:?}", had - released);
    let waiting = wait(name);
    queued(name, to).await;
    let released = Instant::now();
    next.release().await.unwrap();
    let (next, had) = waiting.await.unwrap();
    assert!(had - released < Duration::from_secs(3), "{:?}", had - released);
    next.release().await.unwrap();
}
