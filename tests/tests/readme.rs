//! What the README says of guarantees is what the engines say of themselves.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs, reason = "a test")]

use fencelock_core::guarantee_table;
use std::path::Path;

const BEGIN: &str = "<!-- guarantees:begin -->\n";
const END: &str = "<!-- guarantees:end -->";

/// On a difference the right table is printed, to be copied.
#[tokio::test]
async fn the_guarantee_table_is_what_the_engines_say() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    let printed = readme.split_once(BEGIN).unwrap().1.split_once(END).unwrap().0;

    // Under target/, since the system's temporary folder may be in memory, which is another deployment.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let memory = fencelock::connect("memory:").await.unwrap();
    let sqlite = format!("sqlite:{}", directory.path().join("locks.db").display());
    let sqlite = fencelock::connect(&sqlite).await.unwrap();
    let volatile = fencelock_lab::Redis::start().unwrap();
    let durable = fencelock_lab::Redis::start_durable().unwrap();
    let sentinels = fencelock_lab::RedisSentinel::start().unwrap();
    let cluster = fencelock_lab::RedisCluster::start().unwrap();
    let redis = fencelock::connect(format!("redis://{}", volatile.address())).await.unwrap();
    let redis_durable = fencelock::connect(format!("redis://{}", durable.address())).await.unwrap();
    let url = format!("redis+sentinel://{}/{}", sentinels.sentinels()[0], sentinels.name());
    let redis_sentinel = fencelock::connect(url).await.unwrap();
    let redis_cluster = fencelock::connect(format!("redis+cluster://{}", cluster.addresses()[0])).await.unwrap();
    let redlock_nodes = fencelock_lab::RedisNodes::start(3).unwrap();
    let redlock_durable_nodes = fencelock_lab::RedisNodes::start_durable(3).unwrap();
    let redlock = redlock_on(&redlock_nodes).await;
    let redlock_durable = redlock_on(&redlock_durable_nodes).await;
    let postgres = fencelock_lab::Postgres::start_durable().unwrap();
    let postgres_loose = fencelock_lab::Postgres::start().unwrap();
    let mariadb = fencelock_lab::MariaDb::start_durable().unwrap();
    let mariadb_loose = fencelock_lab::MariaDb::start().unwrap();
    let sql = async |url: String| fencelock::connect(url).await.unwrap().guarantees();
    let (postgres, postgres_loose) = (sql(postgres.url()).await, sql(postgres_loose.url()).await);
    let (mariadb, mariadb_loose) = (sql(mariadb.url()).await, sql(mariadb_loose.url()).await);
    // The times of servers as they come.
    let settings = fencelock_lab::ZooKeeperSettings::default().with_tick(2_000).with_sync_limit(5);
    let alone = fencelock_lab::ZooKeeper::start_with(&settings).unwrap();
    let ensemble = fencelock_lab::Ensemble::start_with(3, &settings).unwrap();
    let zookeeper_alone = fencelock::connect(format!("zookeeper://{}", alone.address())).await.unwrap();
    let zookeeper = fencelock::connect(format!("zookeeper://{}", ensemble.addresses())).await.unwrap();
    let url = format!("zookeeper://{}?session=10s", ensemble.addresses());
    let zookeeper_short = fencelock::connect(url).await.unwrap();
    let member = fencelock_lab::Etcd::start().unwrap();
    let members = fencelock_lab::Etcd::start_members(3).unwrap();
    let etcd = async |members: &fencelock_lab::Etcd, attested: &str| {
        let url = format!("etcd://{}?attest={attested}", members.endpoints().join(","));
        fencelock::connect(url).await.unwrap().guarantees()
    };
    // What Debian 12 brings is older than the fixes; attested, it counts as a version that has them.
    let etcd_members = etcd(&members, "etcd.lease_fixes").await;
    let etcd_member = etcd(&member, "etcd.lease_fixes").await;
    let etcd_old = etcd(&members, "").await;
    let table = guarantee_table([
        ("tasks of one process", &*memory.guarantees()),
        ("one file on a local file system, `synchronous=FULL`, on Linux", &*sqlite.guarantees()),
        ("one server with durable settings, no standby", &*postgres),
        ("one server with `fsync` off", &*postgres_loose),
        ("MariaDB, one server with durable settings, no replica", &*mariadb),
        ("MariaDB, one server with `innodb_flush_log_at_trx_commit` other than 1", &*mariadb_loose),
        ("one server, `appendfsync always`, `noeviction`, no replicas", &*redis_durable.guarantees()),
        ("one server as it comes: no persistence, RDB or AOF `everysec`", &*redis.guarantees()),
        ("replicas and Sentinel, with or without `wait_replicas`", &*redis_sentinel.guarantees()),
        ("Cluster", &*redis_cluster.guarantees()),
        ("3 or more nodes, an odd number, each as the one server above, after `redlock init`", &*redlock_durable),
        ("the same, nodes as they come", &*redlock),
        ("3 members, 3.4.38, 3.5.23, 3.6.5 or later, or `etcd.lease_fixes` attested", &*etcd_members),
        ("the same, one member", &*etcd_member),
        ("any number of members of an older version, as in Debian 12", &*etcd_old),
        ("3 voters, `tickTime` 2 s, `syncLimit` 5, session 30 s", &*zookeeper.guarantees()),
        ("the same, session 10 s", &*zookeeper_short.guarantees()),
        ("one server", &*zookeeper_alone.guarantees()),
    ]);
    assert_eq!(printed, table, "the README should say:\n\n{table}");
}

async fn redlock_on(nodes: &fencelock_lab::RedisNodes) -> std::sync::Arc<fencelock_core::Guarantees> {
    use fencelock::redlock::{RedlockConfig, RedlockOperator};
    let url = format!("redlock://{}", nodes.addresses());
    let config = RedlockConfig::from_url(&fencelock_core::EngineUrl::parse(&url).unwrap()).unwrap();
    RedlockOperator::new(config).unwrap().init(0).await.unwrap();
    fencelock::connect(url).await.unwrap().guarantees()
}
