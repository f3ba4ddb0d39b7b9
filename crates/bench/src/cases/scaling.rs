//! What a lock costs beside many others: held by the same client, or lying in the server.

use super::bench::Bench;
use super::held::{free, hold};
use crate::contender::{Contender as _, Entrant, Shape, TTL, client, run_tasks};
use crate::engine::Engine;
use crate::failure::Result;
use crate::measure::{Round, Rounds, cpu};
use crate::row::Row;
use std::time::Instant;

pub(crate) const HELD: &str = "others held by the client";
pub(crate) const STORED: &str = "others in the server";
const ONE: Shape = Shape { tasks: 1, shared: false };

/// Three clients that hold 1, 100 and 10,000 others, in turn.
pub(super) async fn held(bench: &mut Bench) {
    if let Err(why) = measure_held(bench).await {
        bench.not_measured(HELD, "ours", &why);
    }
}

async fn measure_held(bench: &mut Bench) -> Result<()> {
    let counts: [usize; 3] = bench.plan.either([1, 100, 1_000], [1, 100, 10_000]);
    let mut clients = Vec::new();
    for count in counts {
        let locks = client(&bench.place, TTL).await?;
        let guards = hold(&locks, &format!("others-{count}"), count).await?;
        let task = crate::contender::Ours::of(locks.clone()).task(&format!("beside-{count}")).await?;
        clients.push((count, locks, guards, vec![task], Rounds::default()));
    }
    let length = bench.plan.round();
    for _ in 0..bench.plan.rounds() {
        for (_, _, _, tasks, rounds) in &mut clients {
            let (started, used) = (Instant::now(), cpu::of_this_process());
            let (latencies, shares) = run_tasks(tasks, length).await?;
            let (elapsed, client) = (started.elapsed(), cpu::of_this_process() - used);
            rounds.push(Round { elapsed, client, latencies, shares, ..Round::default() });
        }
    }
    let few = clients.first().map(|(.., rounds)| rounds.clone());
    for (count, locks, guards, _, rounds) in clients {
        free(guards).await;
        locks.close().await;
        tell(bench, HELD, "ours", count, &rounds, few.as_ref());
    }
    Ok(())
}

/// Ours and the floor in turn, with ever more others in the server.
pub(super) async fn stored(bench: &mut Bench) {
    if let Err(why) = measure_stored(bench).await {
        bench.not_measured(STORED, "ours", &why);
    }
}

async fn measure_stored(bench: &mut Bench) -> Result<()> {
    let counts: &[usize] = match bench.engine {
        Engine::Etcd | Engine::Zookeeper => bench.plan.either(&[0, 1_000], &[0, 100, 1_000, 10_000]),
        _ => bench.plan.either(&[0, 10_000], &[0, 1_000, 100_000, 1_000_000]),
    };
    let mut there = 0;
    let mut first: Vec<(String, Rounds)> = Vec::new();
    for count in counts {
        bench.server.fill(there, *count).await?;
        there = *count;
        let mut entrants = Vec::new();
        for who in ["ours", "floor"] {
            entrants.push(Entrant::enter(who, &bench.place, ONE, STORED).await?);
        }
        let length = bench.plan.round();
        let all = bench.rounds(STORED, &mut entrants, length, false).await;
        for (who, rounds) in &all {
            let few = first.iter().find(|(other, _)| other == who).map_or(rounds, |(_, rounds)| rounds).clone();
            tell(bench, STORED, who, *count, rounds, Some(&few));
        }
        if first.is_empty() {
            first = all;
        }
    }
    Ok(())
}

/// The ratio is to the rate with the fewest others.
fn tell(bench: &mut Bench, case: &str, who: &str, count: usize, rounds: &Rounds, few: Option<&Rounds>) {
    let row = Row {
        value: Some(count as f64),
        unit: Some("others; the ratio is to the fewest".to_owned()),
        ..bench.row_of(case, who, rounds, few)
    };
    (bench.tell)(row);
}
