//! A nightly job on three hosts, to run once: a lock keeps two from running at once, and
//! a note of the night that was done keeps the late one from running it again.
//!
//! `cargo run --example cron_once`

#![allow(clippy::print_stdout, reason = "it is for people to read")]

use fencelock::sql::sqlite::{SqliteGate, SqliteTransaction};
use fencelock::{Admission, LockClient, Result};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Clocks of hosts differ; the job takes half a second.
const WAKES: [(&str, u64); 3] = [("host 1", 0), ("host 2", 200), ("host 3", 2_500)];

type Outcome<T = ()> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Outcome {
    let directory = tempfile::tempdir()?;
    let gate = SqliteGate::open(directory.path().join("data.db")).await?;
    let mut setup = enter(&gate, 0).await?.ok_or("nobody has entered yet")?;
    sqlx::query("CREATE TABLE nights (night TEXT PRIMARY KEY)").execute(&mut *setup).await?;
    setup.commit().await?;
    drop(gate);

    for (night, noted, what) in [("Monday", false, "with a lock alone"), ("Tuesday", true, "with a lock and a note")] {
        println!("{night}, {what}:");
        let hosts =
            WAKES.map(|(host, late)| tokio::spawn(host_wakes(directory.path().to_owned(), host, late, night, noted)));
        let mut runs = 0;
        for host in hosts {
            runs += u32::from(host.await??);
        }
        println!("  run {runs} times\n");
    }
    println!("A lock says that nobody runs the job now, not that nobody has run it. Keep the lock for at least as");
    println!("long as clocks may differ, or better: note in the data what was done, in the transaction that does it.");
    println!("From a crontab: `fencelock run --no-wait --conflict-exit-code 0 --max-hold 1h nightly -- backup`.");
    Ok(())
}

/// Whether this host ran the job.
async fn host_wakes(directory: PathBuf, host: &str, late: u64, night: &str, noted: bool) -> Outcome<bool> {
    let locks = connect(&directory).await?;
    tokio::time::sleep(Duration::from_millis(late)).await;
    // A job that hangs loses its lock after an hour.
    let Some(guard) = locks.named("cron/nightly").max_hold(Duration::from_secs(3600)).try_acquire().await? else {
        println!("  {host}, {late:4} ms late: somebody else runs it");
        return Ok(false);
    };
    let gate = SqliteGate::open(directory.join("data.db")).await?;
    let Some(mut data) = enter(&gate, guard.token().get()).await? else { return Err("the lock was lost".into()) };
    let done = noted && {
        let note = sqlx::query("INSERT OR IGNORE INTO nights VALUES (?)").bind(night);
        note.execute(&mut *data).await?.rows_affected() == 0
    };
    if done {
        println!("  {host}, {late:4} ms late: {night} is done already");
    } else {
        // The job, dropped at once if the lock is lost.
        guard.while_held(tokio::time::sleep(Duration::from_millis(500))).await?;
        println!("  {host}, {late:4} ms late: runs it, with token {}", guard.token());
        data.commit().await?;
    }
    guard.release().await?;
    locks.close().await;
    Ok(!done)
}

async fn connect(directory: &Path) -> Result<LockClient> {
    fencelock::connect(format!("sqlite:{}", directory.join("locks.db").display())).await
}

/// A transaction behind the gate; `None` if the token is stale.
async fn enter(gate: &SqliteGate, token: u64) -> Result<Option<SqliteTransaction>> {
    Ok(match gate.transaction("nights", fencelock::FencingToken::new(token)).await? {
        Admission::Admitted(pass) => Some(pass),
        Admission::Stale(_) => None,
    })
}
