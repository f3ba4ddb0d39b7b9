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
    let table = guarantee_table([
        ("tasks of one process", &*memory.guarantees()),
        ("one file on a local file system, `synchronous=FULL`, on Linux", &*sqlite.guarantees()),
        ("one server, `appendfsync always`, `noeviction`, no replicas", &*redis_durable.guarantees()),
        ("one server as it comes: no persistence, RDB or AOF `everysec`", &*redis.guarantees()),
        ("replicas and Sentinel, with or without `wait_replicas`", &*redis_sentinel.guarantees()),
        ("Cluster", &*redis_cluster.guarantees()),
    ]);
    assert_eq!(printed, table, "the README should say:\n\n{table}");
}
