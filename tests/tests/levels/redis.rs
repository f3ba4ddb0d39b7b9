//! One Redis, several that copy it, and several that know nothing of each other.

use crate::{Rows, found};
use fencelock::redlock::{RedlockConfig, RedlockOperator};
use fencelock_core::{EngineUrl, Level};
use fencelock_lab::{Redis, RedisCluster, RedisNodes, RedisSentinel};
use std::time::Duration;

const ALWAYS: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

fn with(settings: &[&str]) -> Redis {
    Redis::start_with(settings.iter().copied().chain(["--save", ""])).unwrap()
}

fn url(redis: &Redis) -> String {
    format!("redis://{}", redis.address())
}

fn replica_of(master: &Redis) -> Redis {
    let at = format!("127.0.0.1 {}", master.address().port());
    let replica = Redis::start_with(["--replicaof", &at, "--repl-diskless-sync-delay", "0"]).unwrap();
    let copies = || master.command(&["INFO", "replication"]).unwrap().contains("connected_slaves:1");
    for _ in 0..500 {
        if copies() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(copies(), "the replica did not connect");
    replica
}

#[tokio::test]
async fn redis() {
    let mut rows = Rows::of("redis");
    let always = with(&ALWAYS);
    let fenced = found(url(&always)).await;
    rows.add(
        "one server, `appendfsync always`, `noeviction`, no replicas",
        &fenced,
        Level::Fenced,
        Some("redis.one_server"),
    );
    let memory = Redis::start().unwrap();
    let persistence = Some("redis.persistence");
    rows.add("one server without persistence, or with RDB", &*found(url(&memory)).await, Level::Advisory, persistence);
    let snapshots = Redis::start_with(["--save", "60 1"]).unwrap();
    let rdb = found(url(&snapshots)).await;
    assert_eq!(rdb.rules(), found(url(&memory)).await.rules(), "with RDB it is the same");
    let everysec = with(&["--appendonly", "yes", "--appendfsync", "everysec"]);
    rows.add("one server, AOF `everysec`", &*found(url(&everysec)).await, Level::Advisory, persistence);
    let unsynced = with(&[&ALWAYS[..], &["--no-appendfsync-on-rewrite", "yes"]].concat());
    rows.add(
        "one server, `appendfsync always`, `no-appendfsync-on-rewrite yes`",
        &*found(url(&unsynced)).await,
        Level::Advisory,
        Some("redis.rewrite"),
    );
    let copied = with(&ALWAYS);
    let _replica = replica_of(&copied);
    rows.add(
        "one server with a replica, `appendfsync always`",
        &*found(url(&copied)).await,
        Level::Advisory,
        Some("redis.failover"),
    );
    let sentinels = RedisSentinel::start().unwrap();
    let at = format!("redis+sentinel://{}/{}", sentinels.sentinels()[0], sentinels.name());
    let failover = Some("redis.failover");
    let waited = found(format!("{at}?wait_replicas=1")).await;
    assert_eq!((waited.level(), waited.next_obstacle().map(|rule| rule.id())), (Some(Level::Advisory), failover));
    rows.add("replicas and Sentinel, with or without `wait_replicas`", &*found(at).await, Level::Advisory, failover);
    let cluster = RedisCluster::start().unwrap();
    let at = format!("redis+cluster://{}", cluster.addresses()[0]);
    rows.add("Cluster", &*found(at).await, Level::Advisory, failover);
    let evicts = evicting();
    let nothing = fencelock::builder(url(&evicts)).probe().await.unwrap();
    rows.add("one server, `maxmemory-policy allkeys-lru`", &nothing, None, Some("redis.eviction"));
    rows.compare(|text| text);
}

fn evicting() -> Redis {
    with(&[&ALWAYS[..], &["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]].concat())
}

/// What evicts gives no level at all, and so is refused whatever is required.
#[tokio::test]
async fn a_redis_that_evicts_is_refused() {
    let evicting = evicting();
    let e = fencelock::connect(url(&evicting)).await.unwrap_err();
    assert_eq!(e.kind(), fencelock_core::ErrorKind::Refused, "{e}");
    for part in ["redis.eviction", "allkeys-lru", "maxmemory-policy noeviction", "no level at all"] {
        assert!(e.message().contains(part), "{part}: {e}");
    }
}

async fn init(addresses: &str) -> String {
    let url = format!("redlock://{addresses}");
    let config = RedlockConfig::from_url(&EngineUrl::parse(&url).unwrap()).unwrap();
    RedlockOperator::new(config).unwrap().init(0).await.unwrap();
    url
}

#[tokio::test]
async fn redlock() {
    let mut rows = Rows::of("redlock");
    let (durable, forgetful) = (RedisNodes::start_durable(3).unwrap(), RedisNodes::start(3).unwrap());
    rows.add(
        "3 or more nodes, an odd number, each with `appendfsync always`, `noeviction`, no replicas, after `redlock init`",
        &*found(init(&durable.addresses()).await).await,
        Level::Fenced,
        Some("redlock.lost_nodes"),
    );
    let url = init(&forgetful.addresses()).await;
    rows.add(
        "3 or more nodes, an odd number, without persistence",
        &*found(&url).await,
        Level::Advisory,
        Some("redlock.delayed_restart"),
    );
    rows.add(
        "3 or more nodes, an odd number, without persistence, `redlock.delayed_restart` attested",
        &*found(format!("{url}?attest=redlock.delayed_restart")).await,
        Level::Leased,
        Some("redlock.persistence"),
    );
    rows.compare(|text| {
        let nodes = [durable.addresses(), forgetful.addresses()].join(",");
        nodes.split(',').fold(text, |text, node| text.replace(node, "10.0.0.1:6379"))
    });
}
