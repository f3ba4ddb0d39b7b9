//! Every deployment that is tried, one file an engine.

mod cluster;
mod etcd;
mod redis;
mod redlock;
mod sentinel;
mod sql;
mod sqlite;
mod ways;
mod zookeeper;

use crate::experiment::Experiment;

/// Every experiment.
pub(crate) fn experiments() -> Vec<Experiment> {
    let engines = [
        sqlite::experiments(),
        redis::experiments(),
        sentinel::experiments(),
        cluster::experiments(),
        redlock::experiments(),
        etcd::experiments(),
        zookeeper::experiments(),
        sql::experiments(),
    ];
    engines.into_iter().flatten().collect()
}

/// A holder is stopped for as long as its lock lasts: whether it is lost is a matter of moments.
fn about_its_ttl(experiment: Experiment) -> Experiment {
    let ttl = experiment.ttl;
    experiment.called("for about its ttl").with_times(ttl, ttl * 2)
}
