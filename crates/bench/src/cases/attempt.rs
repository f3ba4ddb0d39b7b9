//! `try_acquire` on a lock that somebody else holds.

use super::bench::{Bench, floor};
use crate::contender::{Contender, Task, connect, entrants, is_elsewhere};
use crate::failure::{Failure, Result};
use crate::measure::{Histogram, Round, Rounds, cpu};
use crate::server::Place;
use std::time::{Duration, Instant};

pub(crate) const CASE: &str = "try on a held lock";

struct Trier {
    who: String,
    /// Kept: their connections end with them.
    _clients: Vec<Box<dyn Contender>>,
    holder: Box<dyn Task>,
    tries: Box<dyn Task>,
    rounds: Rounds,
}

impl Trier {
    async fn enter(place: &Place, who: &str) -> Result<Self> {
        let mut clients = vec![connect(who, place).await?];
        if place.engine.is_shared() {
            clients.push(connect(who, place).await?);
        }
        let (holding, trying) = (clients.first().ok_or("no client")?, clients.last().ok_or("no client")?);
        let name = format!("try/{who}").replace(' ', "-");
        let mut holder = holding.task(&name).await?;
        let tries = trying.task(&name).await?;
        holder.acquire().await?;
        let mut trier = Self { who: who.to_owned(), _clients: clients, holder, tries, rounds: Rounds::default() };
        trier.round(Duration::from_millis(5)).await?;
        Ok(trier)
    }

    async fn round(&mut self, length: Duration) -> Result<Round> {
        let (started, used) = (Instant::now(), cpu::of_this_process());
        let (mut latencies, mut before) = (Histogram::default(), started);
        while before < started + length {
            if self.tries.attempt().await? {
                return Err("it got a lock that is held".into());
            }
            let after = Instant::now();
            latencies.add(after - before);
            before = after;
        }
        let (elapsed, client) = (started.elapsed(), cpu::of_this_process() - used);
        Ok(Round { elapsed, client, latencies, ..Round::default() })
    }
}

pub(super) async fn held(bench: &mut Bench) {
    let mut triers = Vec::new();
    // Those of other runtimes have no such call here.
    for who in entrants(bench.engine).into_iter().filter(|who| !is_elsewhere(who)) {
        match Trier::enter(&bench.place, who).await {
            Ok(trier) => triers.push(trier),
            Err(why) => bench.not_measured(CASE, who, &why),
        }
    }
    let length = bench.plan.round();
    let mut failed: Vec<(String, Failure)> = Vec::new();
    for _ in 0..bench.plan.rounds() {
        for trier in &mut triers {
            match trier.round(length).await {
                Ok(round) => trier.rounds.push(round),
                Err(why) => failed.push((trier.who.clone(), why)),
            }
        }
        triers.retain(|trier| failed.iter().all(|(who, _)| *who != trier.who));
    }
    for (who, why) in &failed {
        bench.not_measured(CASE, who, why);
    }
    for trier in &mut triers {
        let _ = trier.holder.release().await;
    }
    let all: Vec<_> = triers.into_iter().map(|trier| (trier.who, trier.rounds)).collect();
    bench.tell_all(CASE, &all, floor(&all));
}
