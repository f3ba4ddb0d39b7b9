//! What holding costs; acquire and release beside five raw commands sent together;
//! and acquire while two of five nodes are down, hung or slow.
//!
//! `cargo bench -p fencelock-redlock`; it takes about two minutes and starts its own
//! servers. After `--`, `pairs`, `hurt` or `held` choose a part.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    missing_docs,
    reason = "a benchmark"
)]

#[path = "../tests/common/mod.rs"]
mod common;

use common::{client, initialised, proxies};
use fencelock_core::LockClient;
use fencelock_lab::{Mood, Proxy, RedisNodes};
use fencelock_redis::redis::aio::MultiplexedConnection;
use fencelock_redis::redis::io::tcp::TcpSettings;
use fencelock_redis::redis::{self, AsyncConnectionConfig, ConnectionAddr, IntoConnectionInfo as _, Script};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const HOLDS: u64 = 10_000;
const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_secs(1);

fn cpu() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(t.tv_sec).unwrap(), u32::try_from(t.tv_nsec).unwrap())
}

async fn held_locks(count: usize) {
    let nodes = initialised(RedisNodes::start(count).unwrap()).await;
    let client = client(&nodes.addresses()).await;
    let ttl = Duration::from_secs(30);
    let mut guards = Vec::new();
    for at in 0..HOLDS {
        guards.push(client.named(&format!("held/{at}")).ttl(ttl).acquire().await.unwrap());
    }
    // The first interval, in which they fall into step, is measured too.
    for what in ["first", "next", "next"] {
        let (used, started) = (cpu(), Instant::now());
        tokio::time::sleep(ttl / 3).await;
        let used = cpu() - used;
        println!(
            "{HOLDS} held locks, {count} nodes, ttl 30 s, {what} interval: {:.2} % of one core",
            used.as_secs_f64() / started.elapsed().as_secs_f64() * 100.0
        );
    }
    let held = guards.iter().filter(|guard| guard.is_held()).count();
    println!("{held} of {HOLDS} are held");
    for guard in guards {
        guard.release().await.unwrap();
    }
}

/// The same scripts, with keys of the same shape, through the same library and settings: each to all nodes at once.
#[derive(Clone)]
struct Raw {
    nodes: Vec<MultiplexedConnection>,
    acquire: Arc<Script>,
    propose: Arc<Script>,
    free: Arc<Script>,
}

impl Raw {
    async fn connect(nodes: &RedisNodes) -> Self {
        let mut connections = Vec::new();
        for node in nodes.nodes() {
            let address = ConnectionAddr::Tcp(node.address().ip().to_string(), node.address().port());
            let info = address.into_connection_info().unwrap();
            let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
            let options = AsyncConnectionConfig::new().set_response_timeout(None).set_pipeline_buffer_size(1_024);
            let raw = redis::Client::open(info).unwrap();
            connections.push(raw.get_multiplexed_async_connection_with_config(&options).await.unwrap());
        }
        let script = |source: &str| Arc::new(Script::new(source));
        Self {
            nodes: connections,
            acquire: script(
                &include_str!("../src/scripts/acquire.lua")
                    .replace("--READ--", include_str!("../src/scripts/read.lua")),
            ),
            propose: script(include_str!("../src/scripts/propose.lua")),
            free: script(&include_str!("../src/scripts/free.lua").replace("--DEAD--", "")),
        }
    }

    /// Sends it to all nodes and waits for all.
    async fn all(&self, script: &Arc<Script>, keys: &[String], args: &[String]) {
        let mut asked = JoinSet::new();
        for node in &self.nodes {
            let (mut node, script, keys, args) = (node.clone(), Arc::clone(script), keys.to_vec(), args.to_vec());
            asked.spawn(async move {
                let mut call = script.prepare_invoke();
                for key in keys {
                    call.key(key);
                }
                for arg in args {
                    call.arg(arg);
                }
                let _: redis::Value = call.invoke_async(&mut node).await.unwrap();
            });
        }
        while asked.join_next().await.is_some() {}
    }

    /// What an acquire and a release send: the token's number with the acquire, or after it in a round of its own.
    async fn once(&self, task: usize, token: u64, along: bool) {
        let id = format!("{:032x}", fastrand::u128(..));
        let tag = format!("raw:{{{task}}}:");
        let (lock, fence, void) =
            (format!("{tag}lock:{task}"), format!("redlock:{{{task}}}:fence"), format!("{tag}void:{id}"));
        let number = if along { token.to_string() } else { String::new() };
        let keeps = format!("{id} {} 0 7 bench:1", if along { token } else { 0 });
        let args = [keeps, "30000".into(), number];
        self.all(&self.acquire, &[lock.clone(), fence.clone(), void], &args).await;
        if !along {
            self.all(&self.propose, &[lock.clone(), fence], &[token.to_string(), id.clone()]).await;
        }
        self.all(&self.free, &[lock], &[id]).await;
    }
}

/// How many acquire-release pairs a second so many tasks make.
async fn rate<F: Future<Output = ()> + Send + 'static>(
    tasks: usize,
    work: impl Fn(usize, Instant, Arc<AtomicU64>) -> F,
) -> f64 {
    let done = Arc::new(AtomicU64::new(0));
    let started = Instant::now();
    let mut running = JoinSet::new();
    for task in 0..tasks {
        running.spawn(work(task, started + ROUND, Arc::clone(&done)));
    }
    while running.join_next().await.is_some() {}
    done.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64()
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

async fn ours(client: &LockClient, tasks: usize) -> f64 {
    let work = |task, end, done: Arc<AtomicU64>| {
        let lock = client.named(&format!("bench/{task}"));
        async move {
            while Instant::now() < end {
                lock.acquire().await.unwrap().release().await.unwrap();
                done.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    rate(tasks, work).await
}

async fn raw_rate(raw: &Raw, tasks: usize, tokens: &Arc<AtomicU64>, along: bool) -> f64 {
    let work = |task, end, done: Arc<AtomicU64>| {
        let (raw, tokens) = (raw.clone(), Arc::clone(tokens));
        async move {
            while Instant::now() < end {
                raw.once(task, tokens.fetch_add(1, Ordering::Relaxed), along).await;
                done.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    rate(tasks, work).await
}

async fn beside_raw(client: &LockClient, raw: &Raw, tokens: &Arc<AtomicU64>, tasks: usize) {
    let (mut us, mut along, mut after) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        us.push(ours(client, tasks).await);
        along.push(raw_rate(raw, tasks, tokens, true).await);
        after.push(raw_rate(raw, tasks, tokens, false).await);
    }
    let (us, along, after) = (median(us), median(along), median(after));
    println!(
        "acquire + release, {tasks} tasks on one client: {us:.0} a second; raw, the same two rounds of five parallel \
         commands: {along:.0} ({:.2} of it, latency {:.2}); raw, the token in a round of its own: {after:.0} (latency {:.2})",
        us / along,
        along / us,
        after / us
    );
}

/// The mean time of acquire and release, one task.
async fn pair(client: &LockClient) -> Duration {
    let mut rates = Vec::new();
    for _ in 0..3 {
        rates.push(ours(client, 1).await);
    }
    Duration::from_secs_f64(1.0 / median(rates))
}

async fn hurt(nodes: &mut RedisNodes, proxies: &[Proxy], client: &LockClient) {
    let slow = Mood::DelayRequests(Duration::from_secs(2));
    pair(client).await;
    for what in ["slow by 2 s", "hung", "down"] {
        let before = pair(client).await;
        match what {
            "slow by 2 s" => [2, 3].iter().for_each(|at| proxies[*at].set(slow)),
            "hung" => [2, 3].iter().for_each(|at| nodes.nodes()[*at].server().stop()),
            _ => [2, 3].iter().for_each(|at| {
                nodes.nodes_mut()[*at].server_mut().kill();
                proxies[*at].set(Mood::Refuse);
            }),
        }
        client.acquire("first").await.unwrap().release().await.unwrap();
        let after = pair(client).await;
        println!(
            "two of five {what}: acquire + release in {after:?}, with five well {before:?}: {:.2} times",
            after.as_secs_f64() / before.as_secs_f64()
        );
        [2, 3].iter().for_each(|at| {
            proxies[*at].set(Mood::Honest);
            if what == "hung" {
                nodes.nodes()[*at].server().cont();
            }
        });
        tokio::time::sleep(Duration::from_secs(4)).await;
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let parts: Vec<_> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wanted = |part: &str| parts.is_empty() || parts.iter().any(|word| word == part);
    if wanted("pairs") {
        let nodes = initialised(RedisNodes::start(5).unwrap()).await;
        let (client, raw) = (client(&nodes.addresses()).await, Raw::connect(&nodes).await);
        let tokens = Arc::new(AtomicU64::new(1_000_000_000));
        for tasks in [1, 64] {
            beside_raw(&client, &raw, &tokens, tasks).await;
        }
    }
    if wanted("hurt") {
        let mut nodes = initialised(RedisNodes::start(5).unwrap()).await;
        let (proxies, addresses) = proxies(&nodes);
        let client = client(&addresses).await;
        hurt(&mut nodes, &proxies, &client).await;
    }
    if wanted("held") {
        for count in [3, 5] {
            held_locks(count).await;
        }
    }
}
