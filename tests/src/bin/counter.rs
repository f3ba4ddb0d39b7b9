//! A worker that increments under a lock, in a process of its own.
//!
//! - `counter file URL FILE ROUNDS`: reads, increments and writes a file that
//!   nothing but the lock protects.
//! - `counter gate URL DATABASE ROUNDS TTL_MS`: increments a row through a gate,
//!   without asking whether it still holds the lock. Says `held` when it is
//!   granted and waits for a line in return, and says `ack` when an increment
//!   was acknowledged and `stale` when a write was refused, one line each.

#![allow(clippy::print_stdout, reason = "its lines are its report")]

use fencelock::Admission;
use fencelock::sql::sqlite::SqliteGate;
use std::error::Error;
use std::io::Write;
use std::time::Duration;

type Outcome = Result<(), Box<dyn Error>>;

#[tokio::main]
async fn main() -> Outcome {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<_> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["file", url, file, rounds] => count_in_file(url, file, rounds.parse()?).await,
        ["gate", url, database, rounds, ttl] => {
            count_at_gate(url, database, rounds.parse()?, Duration::from_millis(ttl.parse()?)).await
        }
        _ => Err("usage: see the source".into()),
    }
}

async fn count_in_file(url: &str, file: &str, rounds: usize) -> Outcome {
    let locks = fencelock::connect(url).await?;
    let counter = locks.named("counter").wait_at_most(Duration::from_secs(120));
    for _ in 0..rounds {
        let guard = counter.acquire().await?;
        let count: u64 = std::fs::read_to_string(file)?.trim().parse()?;
        tokio::task::yield_now().await;
        std::fs::write(file, (count + 1).to_string())?;
        guard.release().await?;
    }
    Ok(())
}

async fn count_at_gate(url: &str, database: &str, rounds: usize, ttl: Duration) -> Outcome {
    let locks = fencelock::connect(url).await?;
    let counter = locks.named("counter").ttl(ttl).wait_at_most(Duration::from_secs(120));
    let gate = SqliteGate::open(database).await?;
    let mut done = 0;
    while done < rounds {
        let guard = counter.acquire().await?;
        say("held")?;
        // Renewed meanwhile by another thread.
        std::io::stdin().read_line(&mut String::new())?;
        tokio::time::sleep(Duration::from_millis(20)).await;
        match gate.transaction("counter", guard.token()).await? {
            Admission::Admitted(mut pass) => {
                let (count,): (i64,) = sqlx::query_as("SELECT count FROM counter").fetch_one(&mut *pass).await?;
                sqlx::query("UPDATE counter SET count = ?").bind(count + 1).execute(&mut *pass).await?;
                pass.commit().await?;
                say("ack")?;
                done += 1;
            }
            Admission::Stale(_) => say("stale")?,
        }
        // Lost or not: the gate has decided.
        let _ = guard.release().await;
    }
    Ok(())
}

fn say(word: &str) -> Outcome {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{word}")?;
    Ok(out.flush()?)
}
