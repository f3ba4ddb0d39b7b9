//! The servers, one for each engine, each as a program in production would find it.

mod fill;
mod statistics;

use crate::engine::Engine;
use crate::failure::Result;
use fencelock_core::EngineUrl;
use fencelock_lab::{Etcd, MariaDb, Postgres, Redis, RedisNodes, ZooKeeper, ZooKeeperSettings};
use fencelock_redlock::{RedlockConfig, RedlockOperator};
use std::path::PathBuf;
use tempfile::TempDir;

/// Where the servers of an engine are: all that a contender in another process needs to know.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) engine: Engine,
    /// As the facade takes it.
    pub(crate) url: String,
    /// `host:port` of each server.
    pub(crate) addresses: Vec<String>,
}

impl Place {
    pub(crate) fn new(engine: Engine, url: &str) -> Self {
        let hosts = url.split_once("://").map_or("", |(_, rest)| rest).split(['/', '?']).next().unwrap_or("");
        let hosts = hosts.rsplit_once('@').map_or(hosts, |(_, hosts)| hosts);
        Self { engine, url: url.to_owned(), addresses: hosts.split(',').map(str::to_owned).collect() }
    }

    /// The file of SQLite.
    pub(crate) fn file(&self) -> PathBuf {
        self.url.strip_prefix("sqlite:").unwrap_or(&self.url).into()
    }
}

/// A running server; where one is missing, an error that names the package.
pub(crate) enum Server {
    Memory,
    Sqlite(TempDir),
    Postgres(Postgres),
    Mysql(MariaDb),
    Redis(Redis),
    Redlock(RedisNodes),
    Etcd(Etcd),
    ZooKeeper(ZooKeeper),
}

/// What SQLite's file takes with 1,000,000 locks, four times over.
const ROOM: u64 = 1 << 30;

impl Server {
    /// Starts it, with settings that wait for no disk: what the disk costs is the
    /// same for everybody, and would hide what is compared.
    pub(crate) async fn start(engine: Engine) -> Result<Self> {
        Ok(match engine {
            Engine::Memory => Self::Memory,
            Engine::Sqlite => Self::Sqlite(in_memory().map_or_else(tempfile::tempdir, tempfile::tempdir_in)?),
            Engine::Postgres => Self::Postgres(postgres()?),
            Engine::Mysql => Self::Mysql(mariadb()?),
            Engine::Redis => Self::Redis(Redis::start()?),
            Engine::Redlock => {
                let nodes = RedisNodes::start(3)?;
                let url = EngineUrl::parse(&format!("redlock://{}", nodes.addresses()))?;
                RedlockOperator::new(RedlockConfig::from_url(&url)?)?.init(0).await?;
                Self::Redlock(nodes)
            }
            Engine::Etcd => Self::Etcd(Etcd::start()?),
            Engine::Zookeeper => {
                let settings = ZooKeeperSettings::default().with_line("maxClientCnxns=0");
                Self::ZooKeeper(ZooKeeper::start_with(&settings)?)
            }
        })
    }

    pub(crate) fn place(&self) -> Place {
        let (engine, url) = match self {
            Self::Memory => (Engine::Memory, "memory:".to_owned()),
            Self::Sqlite(folder) => (Engine::Sqlite, format!("sqlite:{}", folder.path().join("locks.db").display())),
            Self::Postgres(server) => (Engine::Postgres, server.url()),
            Self::Mysql(server) => (Engine::Mysql, server.url()),
            Self::Redis(server) => (Engine::Redis, format!("redis://{}", server.address())),
            Self::Redlock(nodes) => (Engine::Redlock, format!("redlock://{}", nodes.addresses())),
            Self::Etcd(server) => (Engine::Etcd, format!("etcd://{}", server.endpoints().join(","))),
            Self::ZooKeeper(server) => (Engine::Zookeeper, format!("zookeeper://{}", server.address())),
        };
        Place::new(engine, &url)
    }

    /// The processes that were started; theirs are found as their children.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let one = |server: &fencelock_lab::Server| server.id().into_iter().collect();
        match self {
            Self::Memory | Self::Sqlite(_) => Vec::new(),
            Self::Postgres(server) => one(server.server()),
            Self::Mysql(server) => one(server.server()),
            Self::Redis(server) => one(server.server()),
            Self::Redlock(nodes) => nodes.nodes().iter().filter_map(|node| node.server().id()).collect(),
            Self::Etcd(server) => server.server(0).ok().and_then(fencelock_lab::Server::id).into_iter().collect(),
            Self::ZooKeeper(server) => one(server.server()),
        }
    }
}

/// Where files wait for no disk, with room for the largest case; else its wait is measured with the rest.
fn in_memory() -> Option<&'static str> {
    let folder = "/dev/shm";
    let room = rustix::fs::statvfs(folder).ok()?;
    (room.f_bavail.saturating_mul(room.f_frsize) >= ROOM).then_some(folder)
}

/// With the statistics that count its statements, where they are installed.
fn postgres() -> Result<Postgres> {
    let quick = ["fsync=off", "full_page_writes=off", "max_connections=200"];
    let counting = quick.into_iter().chain(["shared_preload_libraries=pg_stat_statements"]);
    match Postgres::start_with(counting) {
        Ok(server) => Ok(server),
        Err(_) => Ok(Postgres::start_with(quick)?),
    }
}

/// With as much memory and log as it comes with: with the little of the tests' it stops every second to write its pages.
fn mariadb() -> Result<MariaDb> {
    let quick = ["--innodb-flush-log-at-trx-commit=0", "--innodb-flush-method=nosync"];
    let room = ["--innodb-buffer-pool-size=128M", "--innodb-log-file-size=96M"];
    Ok(MariaDb::start_with(quick.into_iter().chain(room))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_what_stands_between_the_scheme_and_the_path() {
        let addresses = |url| Place::new(Engine::Redlock, url).addresses;
        assert_eq!(addresses("redlock://127.0.0.1:1,127.0.0.1:2/x?a=b"), ["127.0.0.1:1", "127.0.0.1:2"]);
        assert_eq!(addresses("postgres://test@127.0.0.1:5/postgres"), ["127.0.0.1:5"]);
        assert_eq!(Place::new(Engine::Sqlite, "sqlite:/a/b.db").file(), PathBuf::from("/a/b.db"));
    }
}
