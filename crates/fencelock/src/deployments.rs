//! What each engine said of itself where it was tried.

use fencelock_core::{Guarantees, read_catalogue};

const KEPT: [&str; 8] = [
    include_str!("deployments/memory.txt"),
    include_str!("deployments/sqlite.txt"),
    include_str!("deployments/postgres.txt"),
    include_str!("deployments/mysql.txt"),
    include_str!("deployments/redis.txt"),
    include_str!("deployments/redlock.txt"),
    include_str!("deployments/etcd.txt"),
    include_str!("deployments/zookeeper.txt"),
];

/// What each engine said of itself in the deployments that it was tried on, of
/// every engine, whether it is compiled in or not; `deployment()` is how it was set up.
///
/// These are kept values: the README's table and `fencelock guarantees` are made
/// from them, and a test starts each deployment and compares. What holds where
/// you are connected is told by [`LockClient::guarantees`](crate::LockClient::guarantees) alone.
///
/// ```
/// use fencelock::Level;
/// let fenced = fencelock::deployments().into_iter().filter(|found| found.level() >= Some(Level::Fenced));
/// assert!(fenced.into_iter().any(|found| found.engine() == "sqlite"));
/// ```
#[must_use]
pub fn deployments() -> Vec<Guarantees> {
    KEPT.into_iter().flat_map(read_catalogue).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock_core::{Level, catalogue};

    #[test]
    fn what_is_kept_is_read_whole() {
        let kept: String = KEPT.concat();
        assert_eq!(catalogue(&deployments()), kept);
    }

    #[test]
    fn every_engine_is_among_them_and_every_level() {
        let found = deployments();
        let engines = ["memory", "sqlite", "postgres", "mysql", "redis", "redlock", "etcd", "zookeeper"];
        for engine in engines {
            assert!(found.iter().any(|found| found.engine() == engine), "{engine}");
        }
        for level in Level::ALL {
            assert!(found.iter().any(|found| found.level() == Some(level)), "{level}");
        }
    }
}
