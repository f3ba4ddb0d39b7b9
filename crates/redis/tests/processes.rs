//! Many processes on one name: tokens, kills, a server that forgets, and what a handover costs.

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

use common::{queued, sent, total, until, url};
use fencelock_lab::Redis;
use libtest_mimic::{Arguments, Failed, Trial};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

const PROCESSES: usize = 8;
const LIMIT: Duration = Duration::from_secs(180);

/// Ends the process when it is dropped.
struct Contender(Child);

impl Contender {
    fn start(url: &str, log: &Path) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .env("FENCELOCK_CONTENDER", url)
            .env("FENCELOCK_CONTENDER_LOG", log)
            .spawn();
        Self(child.unwrap())
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a contender does until it is killed: takes the lock, writes its token down, gives it back.
fn contend(url: &str, log: &Path) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = common::client(url).await;
        let lock = client.named("contended").ttl(Duration::from_secs(2)).wait_at_most(LIMIT);
        let mut log = std::fs::OpenOptions::new().append(true).create(true).open(log).unwrap();
        loop {
            match lock.acquire().await {
                Ok(guard) => {
                    if guard.is_held() {
                        log.write_all(format!("{} {}\n", guard.token(), std::process::id()).as_bytes()).unwrap();
                    }
                    let _ = guard.release().await;
                }
                Err(e) if e.is_retryable() => {}
                Err(e) => panic!("{e}"),
            }
        }
    })
}

/// The present moment on the clock that all processes of the machine share, in nanoseconds.
fn now() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(t.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(t.tv_nsec).unwrap()
}

/// What a waiter does until it is killed: waits for the lock, writes down when it got it, gives it back.
fn wait_in_turn(url: &str, log: &Path) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = common::client(url).await;
        let lock = client.named("handed over").ttl(LIMIT).wait_at_most(LIMIT);
        let mut log = std::fs::OpenOptions::new().append(true).create(true).open(log).unwrap();
        loop {
            let guard = lock.acquire().await.unwrap();
            log.write_all(format!("{}\n", now()).as_bytes()).unwrap();
            guard.release().await.unwrap();
            // The other process takes its turn meanwhile.
            tokio::time::sleep(TRIP * 4).await;
        }
    })
}

const TRIP: Duration = Duration::from_millis(200);

/// Through a wire with a round trip of 200 ms: the release hands it on, and the message tells the other process.
fn a_release_reaches_another_process_within_one_round_trip() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let log = log_in(&directory);
    let redis = Redis::start()?;
    let proxy = fencelock_lab::Proxy::before(redis.address())?;
    // Requests wait for the whole trip and answers for none, which comes to the same.
    proxy.set(fencelock_lab::Mood::DelayRequests(TRIP));
    let url = format!("redis://127.0.0.1:{}", proxy.port());
    let granted = || std::fs::read_to_string(&log).unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut best = Duration::MAX;
    runtime.block_on(async {
        let client = common::client(&url).await;
        let lock = client.named("handed over").ttl(LIMIT).wait_at_most(LIMIT);
        let first = lock.acquire().await.unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .env("FENCELOCK_IN_TURN", &url)
            .env("FENCELOCK_CONTENDER_LOG", &log)
            .spawn();
        let _waiter = Contender(child.unwrap());
        let mut guard = Some(first);
        // On a busy machine one that is told in time is enough.
        for _ in 0..12 {
            let held = match guard.take() {
                Some(guard) => guard,
                None => lock.acquire().await.unwrap(),
            };
            // It has come up, has found the lock held, and listens.
            until("it is in the queue", LIMIT, || queued(&redis, "handed over") == 1).await;
            tokio::time::sleep(TRIP).await;
            let (before, released_at) = (granted().lines().count(), now());
            held.release().await.unwrap();
            let started = Instant::now();
            while granted().lines().count() == before || !granted().ends_with('\n') {
                assert!(started.elapsed() < LIMIT, "nobody was handed the lock");
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            let at: u64 = granted().lines().nth(before).unwrap().parse().unwrap();
            best = best.min(Duration::from_nanos(at.saturating_sub(released_at)));
            if best < TRIP + TRIP / 2 {
                break;
            }
        }
    });
    println!("release to grant in another process: {best:?}, with a round trip of {TRIP:?}");
    assert!(best < TRIP + TRIP / 2, "{best:?}");
    Ok(())
}

/// Each token, and the process that had it.
fn grants(log: &Path) -> Vec<(u64, u32)> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let grant = |line: &str| line.split_once(' ').map(|(token, id)| (token.parse().unwrap(), id.parse().unwrap()));
    text.lines().map(|line| grant(line).unwrap()).collect()
}

fn tokens(log: &Path) -> Vec<u64> {
    grants(log).into_iter().map(|(token, _)| token).collect()
}

fn wait_for(log: &Path, tokens_written: usize, mut meanwhile: impl FnMut()) {
    let started = Instant::now();
    while tokens(log).len() < tokens_written {
        assert!(started.elapsed() < LIMIT, "{} tokens in {LIMIT:?}", tokens(log).len());
        meanwhile();
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn assert_growing(tokens: &[u64]) {
    for pair in tokens.windows(2) {
        assert!(pair[0] < pair[1], "token {} came after {}", pair[1], pair[0]);
    }
}

fn log_in(directory: &tempfile::TempDir) -> PathBuf {
    directory.path().join("tokens")
}

/// 10,000 tokens with kills, then a server that has forgotten everything, then more of them.
fn tokens_grow_through_kills_and_a_server_that_forgets() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let log = log_in(&directory);
    let mut redis = Redis::start()?;
    let url = url(&redis);
    let mut contenders: Vec<_> = (0..PROCESSES).map(|_| Contender::start(&url, &log)).collect();
    let (mut rounds, mut kills) = (0, 0);
    wait_for(&log, 10_000, || {
        rounds += 1;
        if rounds % 3 == 0 {
            let victim = fastrand::usize(..PROCESSES);
            contenders[victim] = Contender::start(&url, &log);
            kills += 1;
        }
    });
    let before = tokens(&log).len();
    redis.server_mut().kill();
    redis.restart()?;
    wait_for(&log, before + 500, || {});
    drop(contenders);
    let tokens = tokens(&log);
    println!("{} tokens, {kills} kills, one restart that lost all", tokens.len());
    assert_growing(&tokens);
    Ok(())
}

fn what_a_handover_costs() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let log = log_in(&directory);
    let redis = Redis::start()?;
    let url = url(&redis);
    let contenders: Vec<_> = (0..PROCESSES).map(|_| Contender::start(&url, &log)).collect();
    wait_for(&log, 200, || {});
    let (before, from, started) = (sent(&redis), tokens(&log).len(), Instant::now());
    std::thread::sleep(Duration::from_secs(5));
    let (after, granted, took) = (sent(&redis), grants(&log), started.elapsed());
    drop(contenders);
    let handovers = granted.len() - from;
    let commands = total(&after) - total(&before);
    let changes = granted[from..].windows(2).filter(|pair| pair[0].1 != pair[1].1).count();
    println!(
        "{PROCESSES} processes: {handovers} handovers in {took:?}, {changes} of them to another process; {:.2} commands a \
         handover",
        commands as f64 / handovers as f64
    );
    assert_growing(&tokens(&log));
    // Who has released asks again, which queues it, and is told.
    assert!(commands as f64 <= handovers as f64 * 2.2, "{before:?} {after:?}");
    Ok(())
}

fn main() -> ExitCode {
    if let (Ok(url), Ok(log)) = (std::env::var("FENCELOCK_CONTENDER"), std::env::var("FENCELOCK_CONTENDER_LOG")) {
        return contend(&url, Path::new(&log));
    }
    if let (Ok(url), Ok(log)) = (std::env::var("FENCELOCK_IN_TURN"), std::env::var("FENCELOCK_CONTENDER_LOG")) {
        return wait_in_turn(&url, Path::new(&log));
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(1);
    let trials = vec![
        Trial::test(
            "tokens_grow_through_kills_and_a_server_that_forgets",
            tokens_grow_through_kills_and_a_server_that_forgets,
        ),
        Trial::test("what_a_handover_costs", what_a_handover_costs),
        Trial::test(
            "a_release_reaches_another_process_within_one_round_trip",
            a_release_reaches_another_process_within_one_round_trip,
        ),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}
