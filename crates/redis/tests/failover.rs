//! Masters that die, freeze, and move: what a client lives through without being made anew.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    missing_docs,
    reason = "a test"
)]

mod common;

use common::{SLACK, client, drained, renewed};
use fencelock_core::{ErrorKind, Level, LockClient};
use fencelock_lab::{Redis, RedisCluster, RedisSentinel};
use std::time::{Duration, Instant};

/// Over before a fail-over is.
const TTL: Duration = Duration::from_millis(900);
/// Of holds that are to live on.
const LONG: Duration = Duration::from_secs(6);

fn sentinel_url(set: &RedisSentinel, settings: &str) -> String {
    let hosts: Vec<_> = set.sentinels().iter().map(ToString::to_string).collect();
    format!(
        "redis+sentinel://{}/{}?request_timeout=1500ms&connect_timeout=1500ms{settings}",
        hosts.join(","),
        set.name()
    )
}

fn cluster_url(cluster: &RedisCluster) -> String {
    format!("redis+cluster://{}?request_timeout=1500ms&connect_timeout=1500ms", cluster.addresses()[0])
}

/// Tries until it works; no single try outlasts its bound.
async fn acquired(client: &LockClient, name: &str, limit: Duration) -> (fencelock_core::LockGuard, Duration) {
    let started = Instant::now();
    loop {
        let tried = Instant::now();
        let outcome = client.named(name).ttl(LONG).try_acquire().await;
        assert!(tried.elapsed() < Duration::from_secs(10), "one try took {:?}", tried.elapsed());
        match outcome {
            Ok(Some(guard)) => return (guard, started.elapsed()),
            Ok(None) => {}
            Err(e) => assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}"),
        }
        assert!(started.elapsed() < limit, "not in {limit:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_dies_is_replaced_under_a_living_client() {
    let mut set = RedisSentinel::start().unwrap();
    let client = client(&sentinel_url(&set, "")).await;
    assert_eq!(client.guarantees().level(), Some(Level::Advisory));
    let guard = client.named("a").ttl(TTL).acquire().await.unwrap();
    let old = guard.token();
    set.servers_mut()[0].server_mut().kill();
    // The replica had it or not: it is told as lost in time either way, or renewed on the new master.
    let (other, took) = acquired(&client, "b", Duration::from_secs(30)).await;
    println!("usable {took:?} after the master's death");
    other.release().await.unwrap();
    let (again, _) = acquired(&client, "a", Duration::from_secs(10)).await;
    assert!(again.token() > old);
    assert!(!guard.is_held());
    drop(guard);
    again.release().await.unwrap();
    drained(&client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_freezes_is_replaced_and_leaves_nobody_behind() {
    let set = RedisSentinel::start().unwrap();
    let client = client(&sentinel_url(&set, "")).await;
    client.acquire("a").await.unwrap().release().await.unwrap();
    set.servers()[0].server().stop();
    let (guard, took) = acquired(&client, "a", Duration::from_secs(30)).await;
    println!("usable {took:?} after the master froze");
    set.servers()[0].server().cont();
    // The old master goes on taking writes until a Sentinel tells it; nobody of ours asks it.
    renewed([&guard]).await;
    guard.release().await.unwrap();
    drained(&client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_few_acknowledgements_undo_the_grant() {
    let set = RedisSentinel::start_with(Duration::from_secs(60)).unwrap();
    let client = client(&sentinel_url(&set, "&wait_replicas=2")).await;
    let plain = common::client(&sentinel_url(&set, "")).await;
    for _ in 0..5 {
        client.acquire("a").await.unwrap().release().await.unwrap();
    }
    set.servers()[2].server().stop();
    for _ in 0..3 {
        let started = Instant::now();
        let e = client.named("a").ttl(Duration::from_secs(60)).try_acquire().await.unwrap_err();
        assert!(e.kind() == ErrorKind::Unavailable && e.message().contains("1 of 2"), "{e}");
        assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
        plain.try_acquire("a").await.unwrap().expect("undone").release().await.unwrap();
    }
    let waiting = client.named("a").wait_at_most(SLACK * 4);
    let waiting = tokio::spawn(async move { waiting.acquire().await });
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    set.servers()[2].server().cont();
    let guard = waiting.await.unwrap().unwrap();
    assert!(plain.try_acquire("a").await.unwrap().is_none());
    guard.release().await.unwrap();
    drained(&client).await;
    assert_eq!(common::locks(&set.servers()[0]), 0);
}

/// The node that has the lock's key, by its place among the masters.
fn owner(cluster: &RedisCluster, name: &str) -> usize {
    let has = |node: &Redis| node.command(&["KEYS", &format!("*:lock:{name}")]).unwrap().contains(":lock:");
    cluster.nodes().iter().take(3).position(has).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_node_that_dies_costs_its_slots_for_a_while_and_no_others() {
    let mut cluster = RedisCluster::start().unwrap();
    let client = client(&cluster_url(&cluster)).await;
    // A name on each master.
    let mut names: [Option<String>; 3] = [None, None, None];
    for at in 0..200 {
        let name = format!("lock {at}");
        let guard = client.named(&name).ttl(LONG).acquire().await.unwrap();
        names[owner(&cluster, &name)].get_or_insert(name);
        guard.release().await.unwrap();
    }
    let names = names.map(Option::unwrap);
    cluster.nodes_mut()[1].server_mut().kill();
    let (guard, took) = acquired(&client, &names[1], Duration::from_secs(30)).await;
    println!("slots usable {took:?} after their master's death");
    for name in [&names[0], &names[2]] {
        let (guard, _) = acquired(&client, name, Duration::from_secs(10)).await;
        guard.release().await.unwrap();
    }
    // On the new master.
    renewed([&guard]).await;
    guard.release().await.unwrap();
    drained(&client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_every_kind_lie_in_one_slot_each() {
    let cluster = RedisCluster::start().unwrap();
    let client = client(&cluster_url(&cluster)).await;
    let long = "x".repeat(512);
    let names = ["a", "A", "a/b", "a{b}", "{a}b", "{}", "}{", "{", "a:b", "a b", "a*", "ключ", "鍵", "🔒", &long];
    let mut guards = Vec::new();
    for name in names {
        guards.push(client.named(name).ttl(LONG).try_acquire().await.unwrap().expect(name));
    }
    for name in names {
        assert!(client.try_acquire(name).await.unwrap().is_none(), "{name}");
    }
    assert_eq!(client.list("").await.unwrap().len(), names.len());
    // Renewed together, each slot by itself.
    renewed(&guards).await;
    for guard in guards {
        guard.release().await.unwrap();
    }
}

/// A slot is moved under a client that knows its old place: first `ASK`, then `MOVED`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_is_followed() {
    let cluster = RedisCluster::start().unwrap();
    let client = client(&cluster_url(&cluster)).await;
    let guard = client.named("a").ttl(LONG).acquire().await.unwrap();
    let from = owner(&cluster, "a");
    let to = (from + 1) % 3;
    let (source, target) = (&cluster.nodes()[from], &cluster.nodes()[to]);
    let id = |node: &Redis| node.command(&["CLUSTER", "MYID"]).unwrap().lines().nth(1).unwrap().to_owned();
    let (source_id, target_id) = (id(source), id(target));
    let key_of =
        |name: &str| source.command(&["KEYS", &format!("*:lock:{name}")]).unwrap().lines().nth(2).map(str::to_owned);
    let key = key_of("a").unwrap();
    // Another hold in the same shard: both are renewed together.
    let mut neighbour = None;
    for at in 0..20_000 {
        let name = format!("n{at}");
        let guard = client.named(&name).ttl(LONG).acquire().await.unwrap();
        if key_of(&name).is_some_and(|found| found.strip_suffix(&name) == key.strip_suffix('a')) {
            neighbour = Some(guard);
            break;
        }
        guard.release().await.unwrap();
    }
    let neighbour = neighbour.unwrap();
    let slot = source.command(&["CLUSTER", "KEYSLOT", &key]).unwrap().trim_start_matches(':').trim().to_owned();
    target.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_id]).unwrap();
    source.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_id]).unwrap();
    let port = target.address().port().to_string();
    let migrate = |key: &str| {
        let moved = source.command(&["MIGRATE", "127.0.0.1", &port, key, "0", "1000"]).unwrap();
        assert_eq!(moved, "+OK\r\n", "{key}");
    };
    // One lock is there already, the other is not, and both live on.
    migrate(&key);
    // One may have been under way.
    renewed([&guard, &neighbour]).await;
    renewed([&guard, &neighbour]).await;
    assert!(client.inspect("a").await.unwrap().is_some());
    // An acquire has several keys, which a slot on the move does not serve.
    match client.try_acquire("a").await {
        Ok(attempt) => assert!(attempt.is_none()),
        Err(e) => assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}"),
    }
    let keys = source.command(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]).unwrap();
    keys.lines().filter(|line| line.starts_with("fencelock")).for_each(migrate);
    let redirected = source.command(&["INFO", "errorstats"]).unwrap();
    assert!(redirected.contains("errorstat_ASK"), "{redirected}");
    for node in [target, source, &cluster.nodes()[(from + 2) % 3]] {
        node.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &target_id]).unwrap();
    }
    assert!(client.try_acquire("a").await.unwrap().is_none());
    let redirected = source.command(&["INFO", "errorstats"]).unwrap();
    assert!(redirected.contains("errorstat_MOVED"), "{redirected}");
    neighbour.release().await.unwrap();
    guard.release().await.unwrap();
    client.try_acquire("a").await.unwrap().expect("released at its new place").release().await.unwrap();
}
