//! From the kill of a holder to the next grant, to a waiter who was there before.

use super::bench::Bench;
use crate::contender::client;
use crate::failure::Result;
use crate::measure::stats::median;
use crate::row::Row;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

pub(crate) const CASE: &str = "crash to next grant";

pub(super) async fn next_grant(bench: &mut Bench) {
    if let Err(why) = measure(bench).await {
        bench.not_measured(CASE, "ours", &why);
    }
}

/// A process that holds so many locks, and how many bytes of memory it says that each took.
pub(super) async fn holder(bench: &Bench, name: &str, ttl: Duration, count: usize) -> Result<(Child, f64)> {
    let mut holder = Command::new(std::env::current_exe()?);
    holder.args(["holder", bench.engine.name(), &bench.place.url, name]);
    holder.args([ttl.as_millis().to_string(), count.to_string()]);
    let mut holder = holder.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
    let output = holder.stdout.take().ok_or("no output")?;
    let line = timeout(Duration::from_secs(120), BufReader::new(output).lines().next_line()).await??;
    let bytes = line.as_deref().and_then(|line| line.strip_prefix("held ")).and_then(|bytes| bytes.parse().ok());
    Ok((holder, bytes.ok_or("the holder got no lock")?))
}

async fn measure(bench: &mut Bench) -> Result<()> {
    let ttl = Duration::from_secs(bench.engine.short_ttl());
    let waiter = client(&bench.place, ttl).await?;
    let rounds = bench.plan.either(1, 7);
    let mut times = Vec::new();
    for round in 0..rounds {
        let name = format!("crash/{round}");
        let (mut holder, _) = holder(bench, &name, ttl, 1).await?;
        let lock = waiter.named(&format!("{name}/0"));
        let waiting = tokio::spawn(async move { lock.acquire().await });
        // Into the time between two renewals, a different part of it each time.
        tokio::time::sleep(ttl / 6 + ttl / 20 * round).await;
        let killed = Instant::now();
        holder.kill().await?;
        let guard = timeout(ttl * 10, waiting).await.map_err(|_| "nobody got it")???;
        times.push(killed.elapsed().as_secs_f64() * 1e3);
        guard.release().await?;
    }
    waiter.close().await;
    let most = times.iter().copied().fold(0.0, f64::max);
    let row = Row {
        rounds: times.len(),
        p50_us: median(times.iter().copied()).map(|ms| ms * 1e3),
        p99_us: Some(most * 1e3),
        value: Some(most - ttl.as_secs_f64() * 1e3),
        unit: Some("ms after the ttl, at the most".to_owned()),
        ..bench.row(CASE, "ours")
    };
    (bench.tell)(row);
    Ok(())
}
