//! Acquire and release of free locks: one task, and 64 tasks on one client with a name each.

use super::bench::{Bench, floor};
use crate::contender::{Entrant, Shape};
use crate::engine::Engine;
use std::time::Duration;

pub(crate) const ONE_TASK: &str = "one task";
pub(crate) const MANY_TASKS: &str = "64 tasks";

pub(super) async fn one_task(bench: &mut Bench) {
    beside_the_floor(bench, ONE_TASK, 1).await;
}

pub(super) async fn many_tasks(bench: &mut Bench) {
    beside_the_floor(bench, MANY_TASKS, 64).await;
}

async fn beside_the_floor(bench: &mut Bench, case: &str, tasks: usize) {
    let plan = bench.plan;
    let takes_part = |who: &str| plan.pinned || plan.has_time_for(who);
    let mut entrants = bench.enter(case, Shape { tasks, shared: false }, takes_part).await;
    if bench.engine == Engine::Sqlite {
        for entrant in &mut entrants {
            outgrow(bench, entrant).await;
        }
    }
    let length = bench.plan.round();
    let all = bench.rounds(case, &mut entrants, length, tasks == 1).await;
    bench.tell_all(case, &all, floor(&all));
}

/// SQLite's log grows up to a thousand pages, of which each commit writes one at least, and is begun anew from then on. A
/// commit that makes a file longer waits for more of the disk: contenders that are not equally far are not alike.
async fn outgrow(bench: &Bench, entrant: &mut Entrant) {
    let mut pairs = 0;
    for _ in 0..40 {
        // Who fails here fails in the first round, and is told of then.
        let Ok(round) = entrant.round(&bench.server, Duration::from_millis(100), false).await else { return };
        pairs += round.latencies.total();
        if pairs >= 600 {
            return;
        }
    }
}
