//! 8 processes on one name: handovers from one to another.

use super::bench::{Bench, floor};
use crate::contender::{Crowd, Entrant, Shape, can_wait, entrants};
use crate::failure::Result;
use crate::measure::{Round, Rounds};

pub(crate) const CASE: &str = "8 processes, one name";
const PROCESSES: usize = 8;

/// The floor is one task alone: release and acquire, and nobody to be told.
pub(super) async fn handover(bench: &mut Bench) {
    let (engine, length) = (bench.engine, bench.plan.round() * 2);
    let mut crowds = Vec::new();
    for who in entrants(engine).into_iter().filter(|who| !who.starts_with("floor") && can_wait(engine, who)) {
        if !bench.plan.has_time_for(who) {
            continue;
        }
        match Crowd::gather(who, &bench.place, PROCESSES).await {
            Ok(crowd) => crowds.push((who, crowd, Rounds::default())),
            Err(why) => bench.not_measured(CASE, who, &why),
        }
    }
    let mut alone = match Entrant::enter("floor", &bench.place, Shape { tasks: 1, shared: true }, CASE).await {
        Ok(entrant) => entrant,
        Err(why) => return bench.not_measured(CASE, "floor", &why),
    };
    let mut all = vec![("floor".to_owned(), Rounds::default())];
    for _ in 0..bench.plan.rounds() {
        for (_, rounds) in &mut all {
            match alone.round(&bench.server, length / 2, false).await {
                Ok(round) => rounds.push(round),
                Err(why) => return bench.not_measured(CASE, "floor", &why),
            }
        }
        let mut going = Vec::new();
        for (who, mut crowd, mut rounds) in crowds {
            let round: Result<Round> = crowd.round(&bench.server, length).await;
            match round {
                Ok(round) => {
                    rounds.push(round);
                    going.push((who, crowd, rounds));
                }
                Err(why) => bench.not_measured(CASE, who, &why),
            }
        }
        crowds = going;
    }
    all.extend(crowds.iter().map(|(who, _, rounds)| ((*who).to_owned(), rounds.clone())));
    bench.tell_all(CASE, &all, floor(&all));
}
