//! What a program needs a lock for, as answers to a few questions.

use std::time::Duration;

/// What it costs when the work is done twice, or by two at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DoubleRun {
    /// Nothing: the second run changes nothing that the first has not.
    Harmless,
    /// Time or money, and the result is right all the same.
    Waste,
    /// Data is wrong afterwards, or something was done that cannot be undone.
    Wrong,
}

/// What the resource that the work changes can check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ResourceCheck {
    /// A fencing token, in the same step as each write: a column, a header, a condition.
    Token,
    /// A unique key for what must happen once: the id of the request or of the run.
    UniqueKey,
    /// It is in a database, and the work is one transaction there.
    Transaction,
    /// Nothing.
    Nothing,
}

/// A service that runs already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Service {
    /// PostgreSQL.
    Postgres,
    /// MySQL or MariaDB.
    MySql,
    /// One Redis without replicas.
    Redis,
    /// Redis with replicas, Sentinel or Cluster.
    RedisFailover,
    /// Three or more Redis servers that know nothing of each other.
    RedisNodes,
    /// etcd.
    Etcd,
    /// Apache ZooKeeper.
    ZooKeeper,
}

macro_rules! names {
    ($type:ident, $count:literal: $($variant:ident = $name:literal),+) => {
        impl $type {
            /// All of them.
            pub const ALL: [Self; $count] = [$(Self::$variant),+];

            /// Its name on the command line.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }
        }
    };
}

names!(DoubleRun, 3: Harmless = "harmless", Waste = "waste", Wrong = "wrong");
names!(ResourceCheck, 4: Token = "token", UniqueKey = "unique-key", Transaction = "transaction", Nothing = "nothing");
names!(Service, 7: Postgres = "postgres", MySql = "mysql", Redis = "redis", RedisFailover = "redis-failover",
    RedisNodes = "redis-nodes", Etcd = "etcd", ZooKeeper = "zookeeper");

/// The answers. What is not answered is taken for the harder case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    pub(super) double_run: DoubleRun,
    pub(super) check: ResourceCheck,
    pub(super) services: Vec<Service>,
    pub(super) work: Duration,
    pub(super) one_host: bool,
    pub(super) stays_up: bool,
}

impl Need {
    /// A need of programs on several hosts, whose resource checks nothing, which
    /// run no service yet, work for a minute, and can wait while a server is away.
    #[must_use]
    pub fn new(double_run: DoubleRun) -> Self {
        let (check, services, work) = (ResourceCheck::Nothing, Vec::new(), Duration::from_secs(60));
        Self { double_run, check, services, work, one_host: false, stays_up: false }
    }

    /// What the resource can check.
    #[must_use]
    pub fn with_check(mut self, check: ResourceCheck) -> Self {
        self.check = check;
        self
    }

    /// A service that runs already, with those named before.
    #[must_use]
    pub fn with_service(mut self, service: Service) -> Self {
        self.services.push(service);
        self
    }

    /// How long the work takes as a rule.
    #[must_use]
    pub fn with_work(mut self, work: Duration) -> Self {
        self.work = work;
        self
    }

    /// Everyone who contends is on one host.
    #[must_use]
    pub fn on_one_host(mut self) -> Self {
        self.one_host = true;
        self
    }

    /// The lock service must go on when a server of it is lost.
    #[must_use]
    pub fn staying_up(mut self) -> Self {
        self.stays_up = true;
        self
    }
}
