//! Tasks in this process that lock and unlock until their time is over.

use super::{Contender, Task};
use crate::failure::Result;
use crate::measure::Histogram;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// What so many tasks lock with: a name each, or all the same one.
pub(crate) async fn tasks(
    contender: &dyn Contender,
    prefix: &str,
    count: usize,
    shared: bool,
) -> Result<Vec<Box<dyn Task>>> {
    let mut tasks = Vec::with_capacity(count);
    for at in 0..count {
        let name = if shared { prefix.to_owned() } else { format!("{prefix}-{at}") };
        tasks.push(contender.task(&name).await?);
    }
    Ok(tasks)
}

/// Runs all of them for so long, but for what is under way then: the latencies of
/// the pairs of acquire and release, and how many each task had.
pub(crate) async fn run_tasks(tasks: &mut Vec<Box<dyn Task>>, length: Duration) -> Result<(Histogram, Vec<u64>)> {
    let end = Instant::now() + length;
    let mut running = JoinSet::new();
    for task in tasks.drain(..) {
        running.spawn(run(task, end));
    }
    let (mut all, mut shares) = (Histogram::default(), Vec::new());
    while let Some(ended) = running.join_next().await {
        let (task, latencies) = ended??;
        tasks.push(task);
        shares.push(latencies.total());
        all.merge(&latencies);
    }
    Ok((all, shares))
}

async fn run(mut task: Box<dyn Task>, end: Instant) -> Result<(Box<dyn Task>, Histogram)> {
    let mut latencies = Histogram::default();
    let mut before = Instant::now();
    while before < end {
        task.acquire().await?;
        task.release().await?;
        let after = Instant::now();
        latencies.add(after - before);
        before = after;
    }
    Ok((task, latencies))
}
