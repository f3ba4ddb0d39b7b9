//! The cases: what is measured of one engine.

mod bench;
mod handover;
mod pairs;

pub(crate) use bench::{Bench, Plan};

use crate::failure::Result;

/// Measures all cases, or those whose name contains one of `wanted`.
pub(crate) async fn all(bench: &mut Bench, wanted: &[String]) -> Result<()> {
    let chosen = |case: &str| wanted.is_empty() || wanted.iter().any(|word| case.contains(word.as_str()));
    if chosen(pairs::ONE_TASK) {
        pairs::one_task(bench).await;
    }
    if chosen(pairs::MANY_TASKS) {
        pairs::many_tasks(bench).await;
    }
    if chosen(handover::CASE) {
        handover::one_client(bench).await;
    }
    Ok(())
}
