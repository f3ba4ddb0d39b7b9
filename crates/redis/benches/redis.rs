//! What holding costs, and acquire and release beside the same two scripts sent raw.
//!
//! `cargo bench -p fencelock-redis`; it takes about a minute and starts its own server.

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

use common::{client, sent, url};
use fencelock_core::LockClient;
use fencelock_lab::Redis;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, ConnectionAddr, IntoConnectionInfo as _, Script};
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

/// The memory that the process has in use.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * u64::try_from(rustix::param::page_size()).unwrap()
}

async fn held_locks(redis: &Redis) {
    let client = client(&url(redis)).await;
    let ttl = Duration::from_secs(30);
    let mut guards = Vec::with_capacity(usize::try_from(HOLDS).unwrap());
    let before = resident();
    for at in 0..HOLDS {
        guards.push(client.named(&format!("held/{at}")).ttl(ttl).acquire().await.unwrap());
    }
    let bytes = (resident() - before) / HOLDS;
    println!("{HOLDS} held locks: {bytes} bytes each in the client, as the system counts them (budget 2048)");
    // The first interval, in which they fall into step, is measured too.
    let (mut commands_at_last, mut share_at_last) = (0, 0.0);
    for what in ["first", "next", "next"] {
        let scripts = |redis: &Redis| sent(redis).get("evalsha").copied().unwrap_or(0);
        let (commands, used, started) = (scripts(redis), cpu(), Instant::now());
        tokio::time::sleep(ttl / 3).await;
        let (commands, used) = (scripts(redis) - commands, cpu() - used);
        let share = used.as_secs_f64() / started.elapsed().as_secs_f64() * 100.0;
        println!(
            "{HOLDS} held locks, ttl 30 s, {what} interval: {commands} commands (budget {}), {share:.2} % of one core \
             (budget 2)",
            HOLDS.div_ceil(256)
        );
        (commands_at_last, share_at_last) = (commands, share);
    }
    // An interval of renewals begins anywhere in the one that is measured, so one command more may fall into it.
    assert!(commands_at_last <= HOLDS.div_ceil(256) + 1, "{commands_at_last} commands");
    assert!(share_at_last <= 2.0, "{share_at_last:.2} % of one core");
    assert!(bytes <= 2_048, "{bytes} bytes");
    let held = guards.iter().filter(|guard| guard.is_held()).count();
    println!("{held} of {HOLDS} are held");
    for guard in guards {
        guard.release().await.unwrap();
    }
}

/// The same two scripts, with keys of the same shape, through the same library and settings.
#[derive(Clone)]
struct Raw {
    connection: MultiplexedConnection,
    acquire: Arc<Script>,
    free: Arc<Script>,
}

impl Raw {
    async fn connect(redis: &Redis) -> Self {
        let address = ConnectionAddr::Tcp(redis.address().ip().to_string(), redis.address().port());
        let info = address.into_connection_info().unwrap();
        let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
        let options = AsyncConnectionConfig::new().set_response_timeout(None).set_pipeline_buffer_size(1_024);
        let raw = redis::Client::open(info).unwrap();
        let connection = raw.get_multiplexed_async_connection_with_config(&options).await.unwrap();
        Self {
            connection,
            acquire: Arc::new(Script::new(&include_str!("../src/scripts/acquire.lua").replace("BASE", "0"))),
            free: Arc::new(Script::new(include_str!("../src/scripts/free.lua"))),
        }
    }

    async fn once(&mut self, task: usize) {
        let id = format!("{:032x}", fastrand::u128(..));
        let tag = format!("raw:{{{task}}}:");
        let lock = format!("{tag}lock:{task}");
        let mut acquire = self.acquire.prepare_invoke();
        acquire.key("raw:fence").key("raw:dead").key(&lock).arg(&id).arg("30000").arg("0 7 bench:1").arg("0").arg("0");
        let token: u64 = acquire.invoke_async(&mut self.connection).await.unwrap();
        let mut free = self.free.prepare_invoke();
        free.key("raw:fence").key("raw:dead").key(&lock).key(format!("{tag}wait:{task}")).arg(format!("{id} {token} "));
        let freed: i64 = free.invoke_async(&mut self.connection).await.unwrap();
        assert_eq!(freed, 1);
    }
}

/// How often threads of this process have been switched to others.
fn switches() -> u64 {
    let of = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
    let status: String = std::fs::read_dir("/proc/self/task").unwrap().map(|task| of(task.unwrap())).collect();
    let counts = status.lines().filter_map(|line| line.split_once("voluntary_ctxt_switches:"));
    counts.map(|(_, count)| count.trim().parse::<u64>().unwrap()).sum()
}

/// The processor time that the server has used, in seconds.
fn server_cpu(redis: &Redis) -> f64 {
    let info = redis.command(&["INFO", "cpu"]).unwrap();
    let used = |what: &str| info.lines().find_map(|line| line.strip_prefix(what)?.trim().parse::<f64>().ok()).unwrap();
    used("used_cpu_user:") + used("used_cpu_sys:")
}

/// What pairs of acquire and release have cost. Unlike time, it does not depend on who else is busy.
#[derive(Default)]
struct Cost {
    pairs: f64,
    cpu: Duration,
    server: f64,
    commands: u64,
    switches: u64,
}

impl Cost {
    async fn of(&mut self, redis: &Redis, rate: impl Future<Output = f64>) -> f64 {
        let scripts = || sent(redis).get("evalsha").copied().unwrap_or(0);
        let (server_before, commands_before) = (server_cpu(redis), scripts());
        let (cpu_before, switches_before, started) = (cpu(), switches(), Instant::now());
        let rate = rate.await;
        self.pairs += rate * started.elapsed().as_secs_f64();
        self.cpu += cpu() - cpu_before;
        self.switches += switches() - switches_before;
        self.server += server_cpu(redis) - server_before;
        self.commands += scripts() - commands_before;
        rate
    }

    fn show(&self, whose: &str) {
        println!(
            "  {whose}, a pair: {:.1} us of CPU in the client, {:.1} us in the server, {:.2} commands, {:.2} switches of threads",
            self.cpu.as_secs_f64() * 1e6 / self.pairs,
            self.server * 1e6 / self.pairs,
            self.commands as f64 / self.pairs,
            self.switches as f64 / self.pairs
        );
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

async fn beside_raw(redis: &Redis, client: &LockClient, raw: &Raw, tasks: usize) {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let (mut our_cost, mut their_cost) = (Cost::default(), Cost::default());
    for _ in 0..ROUNDS {
        let ours_now = rate(tasks, |task, end, done| {
            let lock = client.named(&format!("bench/{task}"));
            async move {
                while Instant::now() < end {
                    lock.acquire().await.unwrap().release().await.unwrap();
                    done.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        ours.push(our_cost.of(redis, ours_now).await);
        let raw_now = rate(tasks, |task, end, done| {
            let mut raw = raw.clone();
            async move {
                while Instant::now() < end {
                    raw.once(task).await;
                    done.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        theirs.push(their_cost.of(redis, raw_now).await);
    }
    let (ours, theirs) = (median(ours), median(theirs));
    println!(
        "acquire + release, {tasks} tasks on one client: {ours:.0} a second, raw {theirs:.0}: throughput {:.2} of raw, \
         latency {:.2} of raw",
        ours / theirs,
        theirs / ours
    );
    our_cost.show("ours");
    their_cost.show("raw");
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let redis = Redis::start().unwrap();
    let (client, raw) = (client(&url(&redis)).await, Raw::connect(&redis).await);
    for tasks in [1, 8, 64] {
        beside_raw(&redis, &client, &raw, tasks).await;
    }
    // `cargo bench … -- pairs` leaves out the half minute of holding.
    if !std::env::args().any(|argument| argument == "pairs") {
        held_locks(&redis).await;
    }
}
