//! 1,000 tasks of one client that wait for one lock: what the server is asked meanwhile.

use super::bench::Bench;
use crate::contender::{TTL, client};
use crate::failure::Result;
use crate::measure::cpu;
use crate::row::Row;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

pub(crate) const CASE: &str = "1,000 idle waiters";
const WAITERS: usize = 1_000;

pub(super) async fn waiters(bench: &mut Bench) {
    if let Err(why) = measure(bench).await {
        bench.not_measured(CASE, "ours", &why);
    }
}

/// Until all are in their places, which shows in the server being left alone; 20 s at the most.
async fn settle(bench: &Bench) -> Result<()> {
    let (mut before, mut quiet, began) = (f64::NAN, 0, Instant::now());
    let pause = bench.plan.either(Duration::from_millis(200), Duration::from_millis(500));
    while began.elapsed() < Duration::from_secs(20) {
        tokio::time::sleep(pause).await;
        // A server that is too busy to say is not left alone yet.
        let Ok(sent) = bench.server.commands(false).await else { continue };
        let Some(sent) = sent else { break };
        quiet = if sent - before < 10.0 { quiet + 1 } else { 0 };
        if quiet == 2 {
            break;
        }
        before = sent;
    }
    Ok(())
}

async fn measure(bench: &mut Bench) -> Result<()> {
    let (holder, waiting) = (client(&bench.place, TTL).await?, client(&bench.place, TTL).await?);
    let held = holder.acquire("idle").await?;
    let mut waiters = JoinSet::new();
    for _ in 0..WAITERS {
        // As long as it takes: those that give up in that time, and leave, would be counted.
        let lock = waiting.named("idle").wait_forever();
        waiters.spawn(async move { lock.acquire().await.map(drop) });
    }
    settle(bench).await?;
    let length = bench.plan.either(Duration::from_millis(1_500), Duration::from_secs(20));
    let processes = bench.server.processes();
    let before = bench.server.commands(false).await?;
    let own = bench.server.commands(false).await?.zip(before).map_or(0.0, |(after, before)| after - before);
    let (used, served, started) = (cpu::of_this_process(), cpu::of(&processes), Instant::now());
    tokio::time::sleep(length).await;
    let seconds = started.elapsed().as_secs_f64();
    let (used, served) = (cpu::of_this_process() - used, cpu::of(&processes).saturating_sub(served));
    let after = bench.server.commands(false).await?;
    let sent = after.zip(before).map(|(after, before)| (after - before - 2.0 * own).max(0.0) / seconds);
    waiters.shutdown().await;
    held.release().await?;
    waiting.close().await;
    holder.close().await;
    let row = Row {
        rounds: 1,
        value: Some(sent.unwrap_or(used.as_secs_f64() / seconds * 100.0)),
        unit: Some(if sent.is_some() { "commands/s" } else { "% of a core in the client" }.to_owned()),
        client_cpu_us: Some(used.as_secs_f64() * 1e6 / seconds),
        server_cpu_us: Some(served.as_secs_f64() * 1e6 / seconds),
        ..bench.row(CASE, "ours")
    };
    (bench.tell)(row);
    Ok(())
}
