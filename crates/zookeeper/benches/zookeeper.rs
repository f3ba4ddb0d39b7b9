//! Acquire and release beside the same requests sent raw through the client library.
//!
//! `cargo bench -p fencelock-zookeeper`; it takes about half a minute and starts its own server.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, missing_docs, reason = "a benchmark")]

use fencelock_core::{AcquireOptions, EngineUrl, LockClient};
use fencelock_lab::ZooKeeper;
use fencelock_zookeeper::zookeeper_client::{Acls, Client, CreateMode};
use fencelock_zookeeper::{ZooKeeperConfig, ZooKeeperLock};
use std::time::{Duration, Instant};

const ROUNDS: usize = 61;
const PAIRS: u32 = 40;
const TASKS: u32 = 64;

/// Creation and listing together, then the deletion.
async fn raw_pair(client: &Client, queue: &str) {
    let path = format!("{queue}/{:032x}-", fastrand::u128(..));
    let mode = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let (creation, listing) = (client.create(&path, b"holder=bench:1\n", &mode), client.list_children(queue));
    let (created, listed) = tokio::join!(creation, listing);
    assert_eq!(listed.unwrap().len(), 1);
    client.delete(&format!("{path}{}", created.unwrap().1), None).await.unwrap();
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn tell(what: &str, ours: Vec<Duration>, raw: Vec<Duration>) {
    let (ours, raw) = (median(ours), median(raw));
    println!(
        "{what}: acquire + release {ours:?}, create + list and delete raw {raw:?}: {:.2} of raw",
        ours.as_secs_f64() / raw.as_secs_f64()
    );
}

/// Both in turn, in small groups, so that whatever else the machine does meets both alike.
async fn one_task(locks: &LockClient, raw: &Client) {
    let lock = locks.named("bench");
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let started = Instant::now();
        for _ in 0..PAIRS {
            lock.acquire().await.unwrap().release().await.unwrap();
        }
        ours.push(started.elapsed() / PAIRS);
        let started = Instant::now();
        for _ in 0..PAIRS {
            raw_pair(raw, "/raw/0").await;
        }
        theirs.push(started.elapsed() / PAIRS);
    }
    tell("one task", ours, theirs);
}

async fn many_tasks(locks: &LockClient, raw: &Client) {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS / 4 {
        let started = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..TASKS {
            let lock = locks.named(&format!("bench{task}"));
            tasks.spawn(async move {
                for _ in 0..PAIRS {
                    lock.acquire().await.unwrap().release().await.unwrap();
                }
            });
        }
        tasks.join_all().await;
        ours.push(started.elapsed() / (PAIRS * TASKS));
        let started = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..TASKS {
            let raw = raw.clone();
            tasks.spawn(async move {
                for _ in 0..PAIRS {
                    raw_pair(&raw, &format!("/raw/{task}")).await;
                }
            });
        }
        tasks.join_all().await;
        theirs.push(started.elapsed() / (PAIRS * TASKS));
    }
    tell("64 tasks, each pair", ours, theirs);
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let server = ZooKeeper::start().unwrap();
    let url = EngineUrl::parse(&format!("zookeeper://{}?session=30s", server.address())).unwrap();
    let engine = ZooKeeperLock::connect(ZooKeeperConfig::from_url(&url).unwrap()).await.unwrap();
    let defaults = AcquireOptions::default().with_ttl(Duration::from_secs(30));
    let locks = LockClient::builder(engine).defaults(defaults).build().unwrap();
    let raw = Client::connector().with_session_timeout(Duration::from_secs(30));
    let raw = raw.connect(&server.address().to_string()).await.unwrap();
    let mode = CreateMode::Persistent.with_acls(Acls::anyone_all());
    for task in 0..TASKS {
        raw.mkdir(&format!("/raw/{task}"), &mode).await.unwrap();
    }
    one_task(&locks, &raw).await;
    many_tasks(&locks, &raw).await;
    locks.close().await;
}
