//! Many processes, one lock: nothing is lost, whoever is killed or stopped.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    missing_docs,
    reason = "a test"
)]

use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Killed when dropped, stopped or not.
struct Worker(Child);

impl Worker {
    fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_counter"));
        Self(command.args(arguments).stdout(Stdio::piped()).stdin(Stdio::piped()).spawn().unwrap())
    }

    /// What it waits for while it holds; one that was killed does not hear it.
    fn go(&mut self) {
        let _ = self.0.stdin.as_mut().unwrap().write_all(b"\n");
    }

    fn signal(&self, signal: Signal) {
        let id = Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap();
        kill_process(id, signal).unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn url(directory: &Path) -> String {
    format!("sqlite:{}?request_timeout=30s&busy_timeout=20s", directory.join("locks.db").display())
}

#[test]
fn eight_processes_count_to_four_hundred() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("count");
    std::fs::write(&file, "0").unwrap();
    let start = Instant::now();
    let arguments = ["file", &url(directory.path()), file.to_str().unwrap(), "50"];
    let mut workers: Vec<_> = (0..8).map(|_| Worker::start(&arguments)).collect();
    for worker in &mut workers {
        assert!(worker.0.wait().unwrap().success());
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "400");
    println!("400 handovers among 8 processes in {:?}", start.elapsed());
}

const TTL: Duration = Duration::from_millis(400);
const ROUNDS: usize = 25;
/// What a take-over may take beyond the ttl where the machine stands still now and then.
const SLACK: Duration = Duration::from_secs(8);

#[test]
fn killed_and_stopped_holders_lose_no_acknowledged_increment() {
    let directory = tempfile::tempdir().unwrap();
    let database = directory.path().join("data.db");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(make_counter(&database));
    let (ttl, rounds) = (TTL.as_millis().to_string(), ROUNDS.to_string());
    let arguments = ["gate", &url(directory.path()), database.to_str().unwrap(), &rounds, &ttl];
    let (said, heard) = mpsc::channel();
    let start = |number: usize| {
        let mut worker = Worker::start(&arguments);
        let output = worker.0.stdout.take().unwrap();
        let said = said.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = said.send((number, line));
            }
            let _ = said.send((number, "end".to_owned()));
        });
        worker
    };
    let mut workers: Vec<_> = (0..8).map(start).collect();
    let (mut acks, mut stale, mut kills, mut stops, mut ended) = (0, 0, 0, 0, 0);
    let mut failed: Option<Instant> = None;
    let mut longest = Duration::ZERO;
    let mut killed = vec![false; 8];
    // The first holder is stopped until one who was granted the lock after it has written: its write is stale for sure.
    let (mut first, mut later) = (None, Vec::new());
    let deadline = Instant::now() + Duration::from_secs(120);
    while ended < workers.len() {
        let left = deadline.saturating_duration_since(Instant::now());
        let (number, line) = heard.recv_timeout(left).expect("everyone ends within two minutes");
        match line.as_str() {
            "held" => {
                if let Some(failed) = failed.take() {
                    longest = longest.max(failed.elapsed());
                }
                later.push(number);
                match fastrand::u32(0..12) {
                    _ if stops == 0 => {
                        workers[number].signal(Signal::STOP);
                        (stops, failed, first) = (1, Some(Instant::now()), Some(number));
                        later.clear();
                    }
                    chance if kills == 0 || chance == 0 && kills < 6 => {
                        workers[number].signal(Signal::KILL);
                        (kills, killed[number], failed) = (kills + 1, true, Some(Instant::now()));
                    }
                    1 if stops < 8 => {
                        workers[number].signal(Signal::STOP);
                        (stops, failed) = (stops + 1, Some(Instant::now()));
                        let id = workers[number].0.id();
                        std::thread::spawn(move || {
                            std::thread::sleep(TTL * 3);
                            let id = Pid::from_raw(i32::try_from(id).unwrap()).unwrap();
                            // It may have been killed meanwhile; it is reaped by the test alone, so the id is still its own.
                            let _ = kill_process(id, Signal::CONT);
                        });
                    }
                    _ => {}
                }
                // Not before it was hit, so that whoever is stopped has yet to write.
                workers[number].go();
            }
            "ack" => {
                acks += 1;
                if later.contains(&number)
                    && let Some(first) = first.take()
                {
                    workers[first].signal(Signal::CONT);
                }
            }
            "stale" => stale += 1,
            "end" if killed[number] => {
                killed[number] = false;
                // Its place is taken by another, under a number of its own.
                killed.push(false);
                workers.push(start(workers.len()));
                ended += 1;
            }
            "end" => {
                assert!(workers[number].0.wait().unwrap().success());
                ended += 1;
            }
            other => panic!("{other}"),
        }
    }
    let count = runtime.block_on(read_counter(&database));
    println!(
        "{count} counted, {acks} acknowledged, {kills} killed, {stops} stopped, {stale} stale writes refused; \
              the next holder was in after {longest:?} at most, ttl {TTL:?}"
    );
    assert!(kills > 0 && stops > 0);
    // A killed holder may have committed and not have said so.
    assert!(count >= acks && count <= acks + kills, "{acks} acknowledged, {count} counted");
    assert!(stale > 0, "at least one stale write was attempted, and refused");
    assert!(longest <= TTL + SLACK, "the next holder was in only after {longest:?}");
}

async fn connect(database: &Path) -> sqlx::SqliteConnection {
    use sqlx::ConnectOptions;
    sqlx::sqlite::SqliteConnectOptions::new().filename(database).create_if_missing(true).connect().await.unwrap()
}

async fn make_counter(database: &Path) {
    let mut connection = connect(database).await;
    sqlx::query("CREATE TABLE counter (count INTEGER)").execute(&mut connection).await.unwrap();
    sqlx::query("INSERT INTO counter VALUES (0)").execute(&mut connection).await.unwrap();
}

async fn read_counter(database: &Path) -> i64 {
    let (count,) = sqlx::query_as("SELECT count FROM counter").fetch_one(&mut connect(database).await).await.unwrap();
    count
}
