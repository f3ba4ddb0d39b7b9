//! Two processes, one lock on a SQLite file: who may work, how a paused holder
//! learns that it may not, and what stops the write that it makes all the same.
//!
//! `cargo run --example quickstart`

#![allow(clippy::print_stdout, reason = "it is for people to read")]

use fencelock::sql::sqlite::SqliteGate;
use fencelock::{Admission, FencingToken, LockClient};
use rustix::process::{Pid, Signal, kill_process};
use std::error::Error;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const TTL: Duration = Duration::from_secs(1);

#[tokio::main]
async fn main() -> Outcome {
    match std::env::args().nth(1) {
        Some(directory) => worker(Path::new(&directory)).await,
        None => story().await,
    }
}

// ---- the workers: two processes that know nothing of each other ----

/// Obeys one command a line: `acquire`, `write` (through the gate), `held?`, `release`.
async fn worker(directory: &Path) -> Outcome {
    let locks = connect(directory).await?;
    let gate = SqliteGate::open(directory.join("shop.db")).await?;
    let mut guard = None;
    let mut commands = BufReader::new(tokio::io::stdin()).lines();
    while let Some(command) = commands.next_line().await? {
        let answer = match (command.as_str(), guard.take()) {
            ("acquire", _) => {
                let new = locks.named("stock/shoes").ttl(TTL).acquire().await?;
                let token = new.token();
                guard = Some(new);
                token.to_string()
            }
            ("held?", Some(held)) => {
                let answer = if held.is_held() { "yes".to_owned() } else { format!("no, {}", held.lost().await) };
                guard = Some(held);
                answer
            }
            // The careless way: it does not ask whether it still holds the lock.
            ("write", Some(held)) => {
                let answer = sell_one(&gate, held.token()).await?;
                guard = Some(held);
                answer
            }
            ("release", Some(held)) => match held.release().await {
                Ok(()) => "released".to_owned(),
                Err(e) => e.to_string(),
            },
            (other, _) => format!("cannot {other} now"),
        };
        println!("{answer}");
    }
    locks.close().await;
    Ok(())
}

async fn connect(directory: &Path) -> Outcome<LockClient> {
    Ok(fencelock::connect(&format!("sqlite:{}", directory.join("locks.db").display())).await?)
}

/// Reads the stock and writes it back less one, in a transaction that the token had to enter.
async fn sell_one(gate: &SqliteGate, token: FencingToken) -> Outcome<String> {
    match gate.transaction("stock/shoes", token).await? {
        Admission::Admitted(mut pass) => {
            let (pairs,): (i64,) = sqlx::query_as("SELECT pairs FROM stock").fetch_one(&mut *pass).await?;
            sqlx::query("UPDATE stock SET pairs = ?").bind(pairs - 1).execute(&mut *pass).await?;
            pass.commit().await?;
            Ok(format!("sold, {} left", pairs - 1))
        }
        Admission::Stale(stale) => Ok(format!("refused, {stale}")),
    }
}

// ---- the story ----

async fn story() -> Outcome {
    let directory = tempfile::tempdir()?;
    stock_up(directory.path()).await?;
    let locks = connect(directory.path()).await?;
    let guarantees = locks.guarantees();
    let level = guarantees.level().map_or("none", |level| level.as_str());
    println!("Locks in a SQLite file; level here: {level}, among all processes of this {}.\n", guarantees.scope());

    let (mut alice, mut bob) = (Worker::start("alice", directory.path())?, Worker::start("bob", directory.path())?);
    println!("Two processes sell shoes, one at a time. Each grant has a larger token:");
    let mut last = FencingToken::new(0);
    for _ in 0..2 {
        for seller in [&mut alice, &mut bob] {
            let token = seller.acquire().await?;
            let sold = seller.ask("write").await?;
            seller.ask("release").await?;
            println!("  {:5} acquired with token {token}: {sold}", seller.name);
            check(token > last, "tokens grow")?;
            last = token;
        }
    }

    println!("\nNow alice acquires, and is paused before she writes (SIGSTOP), past her ttl of {TTL:?}:");
    let old = alice.acquire().await?;
    println!("  alice acquired with token {old}");
    check(locks.try_acquire("stock/shoes").await?.is_none(), "nobody else gets in")?;
    alice.signal(Signal::STOP)?;
    let paused = Instant::now();
    let new = bob.acquire().await?;
    println!("  bob   acquired with token {new}, {} ms after alice stopped renewing", paused.elapsed().as_millis());
    println!("  bob   {}", bob.ask("write").await?);
    check(new > old, "tokens grow")?;

    println!("\nAlice goes on (SIGCONT):");
    alice.signal(Signal::CONT)?;
    let held = alice.ask("held?").await?;
    println!("  alice asks whether she still holds the lock: {held}");
    check(held.starts_with("no"), "the first question after waking says lost")?;
    let write = alice.ask("write").await?;
    println!("  alice writes all the same: {write}");
    check(write.starts_with("refused"), "the gate refuses her token")?;
    println!("  alice releases: {}", alice.ask("release").await?);
    println!("  bob   still holds it: {}, and releases: {}", bob.ask("held?").await?, bob.ask("release").await?);

    let pairs = pairs_left(directory.path()).await?;
    check(pairs == 5, "five sold of ten")?;
    alice.end().await?;
    bob.end().await?;
    println!(
        "\nFive of ten pairs sold, {pairs} left: the paused holder was told, its stale write refused, nothing was lost."
    );
    Ok(())
}

fn check(so: bool, what: &str) -> Outcome {
    if so { Ok(()) } else { Err(format!("not so: {what}").into()) }
}

async fn shop(directory: &Path) -> Outcome<sqlx::SqliteConnection> {
    use sqlx::ConnectOptions;
    let file = sqlx::sqlite::SqliteConnectOptions::new().filename(directory.join("shop.db")).create_if_missing(true);
    Ok(file.connect().await?)
}

async fn stock_up(directory: &Path) -> Outcome {
    let mut shop = shop(directory).await?;
    sqlx::query("CREATE TABLE stock (pairs INTEGER)").execute(&mut shop).await?;
    sqlx::query("INSERT INTO stock VALUES (10)").execute(&mut shop).await?;
    Ok(())
}

async fn pairs_left(directory: &Path) -> Outcome<i64> {
    let (pairs,) = sqlx::query_as("SELECT pairs FROM stock").fetch_one(&mut shop(directory).await?).await?;
    Ok(pairs)
}

/// This program, run again as a seller. Killed when dropped.
struct Worker {
    name: &'static str,
    process: Child,
    commands: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    fn start(name: &'static str, directory: &Path) -> Outcome<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let (Some(commands), Some(answers)) = (process.stdin.take(), process.stdout.take()) else {
            return Err("a worker has no pipes".into());
        };
        Ok(Self { name, process, commands, answers: BufReader::new(answers).lines() })
    }

    async fn ask(&mut self, command: &str) -> Outcome<String> {
        self.commands.write_all(format!("{command}\n").as_bytes()).await?;
        let answer = tokio::time::timeout(Duration::from_secs(30), self.answers.next_line()).await??;
        answer.ok_or_else(|| format!("{} has ended", self.name).into())
    }

    async fn acquire(&mut self) -> Outcome<FencingToken> {
        Ok(FencingToken::new(self.ask("acquire").await?.parse()?))
    }

    fn signal(&self, signal: Signal) -> Outcome {
        let id = self.process.id().and_then(|id| Pid::from_raw(id.cast_signed())).ok_or("the worker has ended")?;
        Ok(kill_process(id, signal)?)
    }

    async fn end(self) -> Outcome {
        let Self { mut process, commands, .. } = self;
        drop(commands);
        process.wait().await?;
        Ok(())
    }
}
