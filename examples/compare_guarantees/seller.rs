//! A seller of shoes, who obeys one command a line.

use crate::{Outcome, TTL, now};
use fencelock::sql::sqlite::SqliteGate;
use fencelock::{Admission, FencingToken, LockClient, LockGuard};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};

/// Ends when there are no more commands.
pub(crate) async fn seller(
    locks: LockClient,
    folder: &Path,
    from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
) -> Outcome {
    let gate = SqliteGate::open(folder.join("data.db")).await?;
    let lock = locks.named("stock/shoes").ttl(TTL);
    let believed = Arc::new(AtomicU64::new(0));
    let (mut guard, mut read): (Option<LockGuard>, i64) = (None, 0);
    let mut commands = BufReader::new(from).lines();
    while let Some(command) = commands.next_line().await? {
        let answer = match (command.as_str(), guard.take()) {
            ("acquire", _) => {
                guard = Some(lock.acquire().await?);
                granted(guard.as_ref(), &believed)
            }
            // Asks all the time, whatever the service answers.
            ("grab", _) => {
                let end = Instant::now() + TTL * 4;
                while guard.is_none() && Instant::now() < end {
                    guard = lock.try_acquire().await.ok().flatten();
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                granted(guard.as_ref(), &believed)
            }
            ("read", held) => {
                guard = held;
                read = pairs(&gate, "open").await?;
                read.to_string()
            }
            // The careless way: it does not ask whether it still holds the lock.
            ("write", Some(held)) => {
                let admitted = sell(&gate, &held, read).await?;
                guard = Some(held);
                if admitted { "sold" } else { "refused" }.to_owned()
            }
            ("held?", Some(held)) => {
                let told = if held.is_held() { "yes".to_owned() } else { held.lost().await.to_string() };
                guard = Some(held);
                format!("{} {told}", believed.load(Ordering::SeqCst))
            }
            ("release", Some(held)) => held.release().await.map_or_else(|e| e.to_string(), |()| "released".to_owned()),
            ("sleep", held) => {
                guard = held;
                std::thread::sleep(TTL * 3 / 2);
                "slept".to_owned()
            }
            ("level", _) => describe(&locks),
            ("cost", _) => cost(&locks).await?.to_string(),
            (other, _) => format!("cannot {other} now"),
        };
        to.write_all(format!("{answer}\n").as_bytes()).await?;
        to.flush().await?;
    }
    locks.close().await;
    Ok(())
}

/// `TOKEN WHEN`, and from now on when the holder last believed in it is noted.
fn granted(guard: Option<&LockGuard>, believed: &Arc<AtomicU64>) -> String {
    let Some(guard) = guard else { return "none".to_owned() };
    let (monitor, believed, at) = (guard.monitor(), Arc::clone(believed), now());
    believed.store(at, Ordering::SeqCst);
    tokio::spawn(async move {
        loop {
            let asked = now();
            if !monitor.is_held() {
                return;
            }
            believed.fetch_max(asked, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    format!("{} {at}", guard.token())
}

/// What is left, read without entering as anybody.
pub(crate) async fn pairs(gate: &SqliteGate, kind: &str) -> Outcome<i64> {
    let Admission::Admitted(mut pass) = gate.transaction("reading", FencingToken::new(0)).await? else {
        return Err("nobody enters `reading` with a token".into());
    };
    let query = sqlx::query_as("SELECT pairs FROM stock WHERE kind = ?").bind(kind);
    Ok(query.fetch_one(&mut *pass).await.map(|(pairs,)| pairs)?)
}

/// One pair from each of two stocks: with and without a gate. Whether the gate let it through.
async fn sell(gate: &SqliteGate, guard: &LockGuard, read: i64) -> Outcome<bool> {
    if let Admission::Admitted(mut pass) = gate.transaction("reading", FencingToken::new(0)).await? {
        sqlx::query("UPDATE stock SET pairs = ? WHERE kind = 'open'").bind(read - 1).execute(&mut *pass).await?;
        pass.commit().await?;
    }
    let Admission::Admitted(mut pass) = gate.transaction("stock/shoes", guard.token()).await? else { return Ok(false) };
    sqlx::query("UPDATE stock SET pairs = pairs - 1 WHERE kind = 'gated'").execute(&mut *pass).await?;
    pass.commit().await?;
    Ok(true)
}

fn describe(locks: &LockClient) -> String {
    let found = locks.guarantees();
    let leans: Vec<_> = found.assumptions().map(|assumption| assumption.id()).collect();
    let why = found.next_obstacle().map_or("-", |rule| rule.reason());
    let level = found.level().map_or("none", |level| level.as_str());
    format!("{level}\t{}\t{why}", if leans.is_empty() { "-".to_owned() } else { leans.join(" ") })
}

/// The median of what an acquire of a free lock takes, in microseconds.
async fn cost(locks: &LockClient) -> Outcome<u128> {
    let lock = locks.named("cost").ttl(TTL);
    let mut took = Vec::new();
    for _ in 0..101 {
        let start = Instant::now();
        let guard = lock.acquire().await?;
        took.push(start.elapsed().as_micros());
        guard.release().await?;
    }
    took.sort_unstable();
    Ok(took.get(50).copied().unwrap_or_default())
}
