//! A cold start: connect, and the first grant.

use super::bench::{Bench, floor};
use crate::contender::{connect, entrants, is_elsewhere};
use crate::engine::Engine;
use crate::failure::{Failure, Result};
use crate::measure::{Histogram, Round, Rounds, cpu};
use crate::server::Place;
use std::time::{Duration, Instant};

pub(crate) const CASE: &str = "cold start";
/// The longest that a quick run goes on with it.
const SHORT: Duration = Duration::from_secs(1);

async fn once(place: &Place, who: &str) -> Result<Round> {
    let (started, used) = (Instant::now(), cpu::of_this_process());
    let client = connect(who, place).await?;
    let mut task = client.task("cold").await?;
    task.acquire().await?;
    let (elapsed, client_cpu) = (started.elapsed(), cpu::of_this_process() - used);
    task.release().await?;
    let mut latencies = Histogram::default();
    latencies.add(elapsed);
    Ok(Round { elapsed, client: client_cpu, latencies, ..Round::default() })
}

pub(super) async fn start(bench: &mut Bench) {
    // The floors of SQL have their tables made by ours, which is no cold start of theirs.
    let fair = !matches!(bench.engine, Engine::Sqlite | Engine::Postgres | Engine::Mysql);
    // To start another runtime would be measured with it.
    let wanted = |who: &&str| (fair || !who.starts_with("floor")) && !is_elsewhere(who);
    let mut all: Vec<(String, Rounds)> =
        entrants(bench.engine).into_iter().filter(wanted).map(|who| (who.to_owned(), Rounds::default())).collect();
    let mut failed: Vec<(String, Failure)> = Vec::new();
    let began = Instant::now();
    for round in 0..bench.plan.rounds() {
        // Where connecting takes long, three times tell as much as six.
        if bench.plan.quick && round > 3 && began.elapsed() > SHORT {
            break;
        }
        for (who, rounds) in &mut all {
            match once(&bench.place, who).await {
                // The first makes tables, parents and the layout's version.
                Ok(_) if round == 0 => {}
                Ok(done) => rounds.push(done),
                Err(why) => failed.push((who.clone(), why)),
            }
        }
    }
    all.retain(|(_, rounds)| rounds.count() > 0);
    let mut told = Vec::new();
    for (who, why) in &failed {
        if all.iter().all(|(measured, _)| measured != who) && !told.contains(&who) {
            bench.not_measured(CASE, who, why);
            told.push(who);
        }
    }
    bench.tell_all(CASE, &all, floor(&all));
}
