//! Acquire and release of free locks: one task, and 64 tasks on one client with a name each.

use super::bench::{Bench, floor};
use crate::contender::Shape;

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
    let length = bench.plan.round();
    let all = bench.rounds(case, &mut entrants, length, tasks == 1).await;
    bench.tell_all(case, &all, floor(&all));
}
