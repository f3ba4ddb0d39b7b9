//! The cases: what is measured of one engine.

mod attempt;
mod bench;
mod cold;
mod crash;
mod handover;
mod held;
mod idle;
mod late;
mod pairs;
mod processes;
mod scaling;

pub(crate) use bench::{Bench, Plan};
pub(crate) use held::hold;

/// The names of the cases, as rows have them.
pub(crate) mod names {
    pub(crate) use super::attempt::CASE as TRY;
    pub(crate) use super::cold::CASE as COLD;
    pub(crate) use super::crash::CASE as CRASH;
    pub(crate) use super::handover::CASE as HANDOVER;
    pub(crate) use super::held::{CPU, MEMORY};
    pub(crate) use super::idle::CASE as IDLE;
    pub(crate) use super::late::{ASKED, CASE as LATE};
    pub(crate) use super::pairs::{MANY_TASKS, ONE_TASK};
    pub(crate) use super::processes::CASE as PROCESSES;
    pub(crate) use super::scaling::{HELD, STORED};
}

/// Measures all cases, or those whose name contains one of `wanted`.
///
/// On all processors only those that one processor may distort.
pub(crate) async fn all(bench: &mut Bench, wanted: &[String]) {
    let chosen = |case: &str| wanted.is_empty() || wanted.iter().any(|word| case.contains(word.as_str()));
    if chosen(names::ONE_TASK) {
        pairs::one_task(bench).await;
    }
    if chosen(names::MANY_TASKS) {
        pairs::many_tasks(bench).await;
    }
    if chosen(names::HANDOVER) && (bench.plan.pinned || !bench.plan.quick) {
        handover::one_client(bench).await;
    }
    if chosen(names::PROCESSES) && bench.engine.is_shared() && (bench.plan.pinned || !bench.plan.quick) {
        processes::handover(bench).await;
    }
    if chosen(names::LATE) {
        late::losses(bench).await;
    }
    if !bench.plan.pinned {
        return;
    }
    if chosen(names::TRY) {
        attempt::held(bench).await;
    }
    if chosen(names::COLD) {
        cold::start(bench).await;
    }
    if chosen(names::IDLE) {
        idle::waiters(bench).await;
    }
    if chosen(names::CPU) {
        held::renewals(bench).await;
    }
    if chosen(names::CRASH) && bench.engine.is_shared() {
        crash::next_grant(bench).await;
    }
    if chosen(names::HELD) {
        scaling::held(bench).await;
    }
    // Last: what lies there stays.
    if chosen(names::STORED) && bench.engine.is_shared() {
        scaling::stored(bench).await;
    }
}
