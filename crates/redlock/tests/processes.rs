//! Eight processes on 64 names, while any minority of five nodes is killed, restarted, and once comes back empty.
//!
//! `REDLOCK_TOKENS` asks for another number of tokens than 20,000.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a test"
)]

mod common;

use fencelock_lab::RedisNodes;
use fencelock_redlock::RedlockOperator;
use libtest_mimic::{Arguments, Failed, Trial};
use std::collections::HashSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

const PROCESSES: usize = 8;
const TASKS: usize = 3;
const NAMES: usize = 64;
const TTL: Duration = Duration::from_secs(3);
/// What is wanted unless the environment says otherwise; a busy machine may get less far in the time there is.
const WANTED: usize = 20_000;
/// The longest wait for one lock.
const LIMIT: Duration = Duration::from_secs(60);
/// When a node comes back empty.
const EMPTIED: Duration = Duration::from_secs(8);
/// Longer than the ttl, so that locks stay exclusive too.
const DELAY: Duration = Duration::from_secs(5);

/// Ends the process when it is dropped.
struct Contender(Child);

impl Drop for Contender {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a contender does until it is killed: takes a lock, writes its token down, gives it back.
fn contend(addresses: &str, directory: &Path) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = common::client(addresses).await;
        let one = |client: fencelock_core::LockClient, directory: PathBuf| async move {
            while directory.exists() {
                let name = fastrand::usize(..NAMES);
                let lock = client.named(&format!("name {name}")).ttl(TTL).wait_at_most(LIMIT);
                match lock.acquire().await {
                    Ok(guard) => {
                        if guard.is_held() {
                            let path = directory.join(name.to_string());
                            let mut log = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
                            log.write_all(format!("{}\n", guard.token()).as_bytes()).unwrap();
                        }
                        let _ = guard.release().await;
                    }
                    Err(e) if e.is_retryable() => {}
                    Err(e) => panic!("{e}"),
                }
            }
        };
        let tasks: Vec<_> = (0..TASKS).map(|_| tokio::spawn(one(client.clone(), directory.to_owned()))).collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    ExitCode::FAILURE
}

fn tokens(directory: &Path, name: usize) -> Vec<u64> {
    let text = std::fs::read_to_string(directory.join(name.to_string())).unwrap_or_default();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

fn count(directory: &Path) -> usize {
    (0..NAMES).map(|name| tokens(directory, name).len()).sum()
}

/// Kills up to `most` of the nodes below `below`, and starts them again after a while.
fn disturb(nodes: &mut RedisNodes, below: usize, most: usize) -> usize {
    let mut victims: Vec<usize> = (0..below).collect();
    fastrand::shuffle(&mut victims);
    victims.truncate(fastrand::usize(1..=most));
    for victim in &victims {
        nodes.nodes_mut()[*victim].server_mut().kill();
    }
    std::thread::sleep(Duration::from_millis(fastrand::u64(50..600)));
    for victim in &victims {
        nodes.nodes_mut()[*victim].restart().unwrap();
    }
    std::thread::sleep(Duration::from_millis(fastrand::u64(50..300)));
    victims.len()
}

fn tokens_grow_through_the_loss_of_any_minority() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let log = directory.path();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let mut nodes = runtime.block_on(common::initialised(RedisNodes::start_durable(5)?));
    let addresses = nodes.addresses();
    let contender = || {
        let child = Command::new(std::env::current_exe().unwrap())
            .env("REDLOCK_CONTENDER", &addresses)
            .env("REDLOCK_CONTENDER_LOG", log)
            .spawn();
        Contender(child.unwrap())
    };
    let mut contenders: Vec<_> = (0..PROCESSES).map(|_| contender()).collect();
    let wanted = std::env::var("REDLOCK_TOKENS").map_or(WANTED, |wanted| wanted.parse().unwrap());
    let limit = LIMIT + Duration::from_millis(6) * u32::try_from(wanted).unwrap();
    let begun = Instant::now();
    let (mut kills, mut emptied) = (0, false);
    while (count(log) < wanted || !emptied) && begun.elapsed() < limit {
        kills += disturb(&mut nodes, 5, 2);
        if fastrand::u8(..4) == 0 {
            contenders[fastrand::usize(..PROCESSES)] = contender();
        }
        if !emptied && begun.elapsed() > EMPTIED {
            emptied = true;
            let node = &mut nodes.nodes_mut()[4];
            node.server_mut().kill();
            std::fs::remove_dir_all(node.server().folder().join("appendonlydir"))?;
            node.restart()?;
            let before = count(log);
            // It does not vote, so one other of the four may be away.
            (0..4).for_each(|_| kills += disturb(&mut nodes, 4, 1));
            assert!(count(log) > before, "three of five go on");
            let node = nodes.nodes()[4].address().to_string();
            runtime.block_on(async {
                let operator = RedlockOperator::new(common::config(&addresses).unwrap()).unwrap();
                assert!(operator.reseed(&node, DELAY).await.unwrap());
            });
        }
    }
    drop(contenders);
    let all = count(log);
    println!("{all} tokens of {wanted} in {:.0?}, {kills} kills of nodes, one emptied and re-seeded", begun.elapsed());
    for name in 0..NAMES {
        let tokens = tokens(log, name);
        assert_eq!(tokens.iter().collect::<HashSet<_>>().len(), tokens.len(), "name {name}: a token came twice");
        for pair in tokens.windows(2) {
            assert!(pair[0] < pair[1], "name {name}: token {} came after {}", pair[1], pair[0]);
        }
    }
    assert!(emptied && all >= wanted / 4, "{all} tokens in {limit:?}");
    Ok(())
}

fn main() -> ExitCode {
    if let (Ok(addresses), Ok(log)) = (std::env::var("REDLOCK_CONTENDER"), std::env::var("REDLOCK_CONTENDER_LOG")) {
        return contend(&addresses, Path::new(&log));
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(1);
    let trial =
        Trial::test("tokens_grow_through_the_loss_of_any_minority", tokens_grow_through_the_loss_of_any_minority);
    libtest_mimic::run(&arguments, vec![trial]).exit_code()
}
