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
