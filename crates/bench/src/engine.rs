//! What is measured: the engines, by the names that they have in a URL.

use clap::ValueEnum;
use std::fmt;

/// One engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Engine {
    Memory,
    Sqlite,
    Postgres,
    Mysql,
    Redis,
    Redlock,
    Etcd,
    Zookeeper,
}

impl Engine {
    pub(crate) const ALL: [Self; 8] = [
        Self::Memory,
        Self::Sqlite,
        Self::Postgres,
        Self::Mysql,
        Self::Redis,
        Self::Redlock,
        Self::Etcd,
        Self::Zookeeper,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
            Self::Redis => "redis",
            Self::Redlock => "redlock",
            Self::Etcd => "etcd",
            Self::Zookeeper => "zookeeper",
        }
    }

    /// Whether other processes can use the same locks.
    pub(crate) fn is_shared(self) -> bool {
        self != Self::Memory
    }

    /// Whether a lease may pass on within a client there.
    pub(crate) fn passes_on(self) -> bool {
        !matches!(self, Self::Redlock | Self::Etcd | Self::Zookeeper)
    }

    /// Whether a client's locks there are those of its session, and end with it.
    pub(crate) fn has_sessions(self) -> bool {
        matches!(self, Self::Etcd | Self::Zookeeper)
    }

    /// The shortest ttl, in seconds, that every server of it grants as asked.
    pub(crate) fn short_ttl(self) -> u64 {
        if self == Self::Etcd { 3 } else { 2 }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
