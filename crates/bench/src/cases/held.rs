//! 10,000 held locks with a ttl of 30 s: what their renewals cost, and the memory of each.
//!
//! In a quick run 1,000 with a ttl of 3 s: as many renewals in a second.

use super::bench::Bench;
use super::crash::holder;
use crate::contender::client;
use crate::engine::Engine;
use crate::failure::Result;
use crate::measure::cpu;
use crate::row::Row;
use fencelock::{LockClient, LockGuard};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

pub(crate) const CPU: &str = "10,000 held locks, client CPU";
const SERVER: &str = "10,000 held locks, server CPU";
pub(crate) const MEMORY: &str = "10,000 held locks, memory";

pub(super) async fn renewals(bench: &mut Bench) {
    if let Err(why) = measure(bench).await {
        bench.not_measured(CPU, "ours", &why);
    }
}

/// Takes so many at once, 64 at a time.
pub(crate) async fn hold(locks: &LockClient, prefix: &str, count: usize) -> Result<Vec<LockGuard>> {
    let mut tasks = JoinSet::new();
    for part in 0..64_usize {
        let (locks, prefix) = (locks.clone(), prefix.to_owned());
        tasks.spawn(async move {
            let mut guards = Vec::new();
            for at in (part..count).step_by(64) {
                guards.push(locks.acquire(&format!("{prefix}/{at}")).await?);
            }
            Ok::<_, fencelock::Error>(guards)
        });
    }
    let mut all = Vec::with_capacity(count);
    while let Some(guards) = tasks.join_next().await {
        all.extend(guards??);
    }
    Ok(all)
}

pub(super) async fn free(guards: Vec<LockGuard>) {
    let mut tasks = JoinSet::new();
    for guard in guards {
        tasks.spawn(guard.release());
        if tasks.len() >= 256 {
            tasks.join_next().await;
        }
    }
    while tasks.join_next().await.is_some() {}
}

async fn measure(bench: &mut Bench) -> Result<()> {
    let count = bench.plan.either(1_000, 10_000);
    let ttl = bench.plan.either(Duration::from_secs(3), Duration::from_secs(30));
    let locks = client(&bench.place, ttl).await?;
    let guards = hold(&locks, "held", count).await?;
    // In the first interval they fall into step.
    tokio::time::sleep(ttl / 3).await;
    let processes = bench.server.processes();
    let (used, served, started) = (cpu::of_this_process(), cpu::of(&processes), Instant::now());
    tokio::time::sleep(ttl / 3).await;
    let seconds = started.elapsed().as_secs_f64();
    let (used, served) = (cpu::of_this_process() - used, cpu::of(&processes).saturating_sub(served));
    let held = guards.iter().filter(|guard| guard.is_held()).count();
    free(guards).await;
    locks.close().await;
    if held < count {
        return Err(format!("{} of {count} were lost", count - held).into());
    }
    let share = |used: Duration| used.as_secs_f64() / seconds * 100.0;
    tell(bench, CPU, share(used), "% of a core");
    if bench.engine != Engine::Memory && bench.engine != Engine::Sqlite {
        tell(bench, SERVER, share(served), "% of a core");
    }
    memory(bench).await
}

/// In a process of its own: here, what earlier cases have freed would be used first.
async fn memory(bench: &mut Bench) -> Result<()> {
    let count = bench.plan.either(1_500, 10_000);
    let (mut process, bytes) = holder(bench, "memory", Duration::from_secs(10), count).await?;
    process.kill().await?;
    tell(bench, MEMORY, bytes, "bytes a hold");
    Ok(())
}

fn tell(bench: &mut Bench, case: &str, value: f64, unit: &str) {
    let row = Row { rounds: 1, value: Some(value), unit: Some(unit.to_owned()), ..bench.row(case, "ours") };
    (bench.tell)(row);
}
