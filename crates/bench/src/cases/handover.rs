//! 8 tasks of one client on one name: handovers a second, commands for each, and how even the shares are.

use super::bench::Bench;
use crate::contender::{COHORT, Entrant, Shape, can_wait};

pub(crate) const CASE: &str = "8 tasks, one name";

/// The floor is one task alone: release and acquire, and nobody to be told.
pub(super) async fn one_client(bench: &mut Bench) {
    let (engine, plan) = (bench.engine, bench.plan);
    let waits = |who: &str| !who.starts_with("floor") && can_wait(engine, who) && plan.has_time_for(who);
    let shape = Shape { tasks: 8, shared: true };
    let mut entrants = bench.enter(CASE, shape, waits).await;
    if engine.passes_on() {
        match Entrant::enter(COHORT, &bench.place, shape, CASE).await {
            Ok(entrant) => entrants.push(entrant),
            Err(why) => bench.not_measured(CASE, COHORT, &why),
        }
    }
    match Entrant::enter("floor", &bench.place, Shape { tasks: 1, shared: true }, CASE).await {
        Ok(entrant) => entrants.push(entrant),
        Err(why) => bench.not_measured(CASE, "floor", &why),
    }
    let length = bench.plan.round() * 2;
    let all = bench.rounds(CASE, &mut entrants, length, true).await;
    bench.tell_all(CASE, &all, super::bench::floor(&all));
}
