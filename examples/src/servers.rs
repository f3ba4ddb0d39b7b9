//! A server of each kind, and how it is hurt.

use crate::Outcome;
use std::fmt;

/// A lock service, and two ways to it.
pub struct Server {
    /// What it is.
    pub name: &'static str,
    /// The way that stays whole.
    pub url: String,
    /// The way that can be cut; the same, if there is no other.
    pub fragile: String,
    /// Hurts it, if that can be done.
    pub harm: Option<Harm>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Server {
    /// One that is there already, and is not hurt.
    pub fn there(name: &'static str, url: impl Into<String>) -> Self {
        let url = url.into();
        Self { name, fragile: url.clone(), url, harm: None }
    }
}

/// Hurts a server, or mends the way to it; blocks meanwhile. The server ends when this is dropped.
pub type Harm = Box<dyn FnMut(Fault) -> Outcome + Send>;

/// What is done to a server.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// The fragile way is cut, and the server killed and started again.
    Begins,
    /// The way is mended.
    Ends,
}

/// Starts a server; blocks until it answers, in a runtime.
pub type Start = fn() -> Outcome<Server>;

/// None without the cargo feature `servers`.
#[cfg(not(feature = "servers"))]
#[must_use]
pub fn servers() -> Vec<(&'static str, Start)> {
    Vec::new()
}

/// Those that the crate `lab` starts for tests.
#[cfg(feature = "servers")]
#[must_use]
pub fn servers() -> Vec<(&'static str, Start)> {
    use fencelock_lab::{Etcd, MariaDb, Mood, Postgres, Proxy, Redis, RedisNodes, ZooKeeper};
    use std::net::SocketAddr;

    /// `restart` kills the server, or what is to be killed of several, and starts it again.
    fn with(
        name: &'static str,
        url: String,
        addresses: impl IntoIterator<Item = SocketAddr>,
        mut restart: impl FnMut() -> Outcome + Send + 'static,
    ) -> Outcome<Server> {
        let (mut fragile, mut ways) = (url.clone(), Vec::new());
        for address in addresses {
            let way = Proxy::before(address)?;
            fragile = fragile.replace(&address.to_string(), &format!("127.0.0.1:{}", way.port()));
            ways.push(way);
        }
        let harm = move |fault| match fault {
            Fault::Begins => {
                ways.iter().for_each(|way| way.set(Mood::Refuse));
                restart()
            }
            Fault::Ends => {
                ways.iter().for_each(|way| way.set(Mood::Honest));
                Ok(())
            }
        };
        Ok(Server { name, url, fragile, harm: Some(Box::new(harm)) })
    }
    fn redis(name: &'static str, mut redis: Redis) -> Outcome<Server> {
        with(name, format!("redis://{}", redis.address()), [redis.address()], move || {
            redis.server_mut().kill();
            Ok(redis.restart()?)
        })
    }
    vec![
        ("postgres", || {
            let mut server = Postgres::start_durable()?;
            with("postgres", server.url(), [server.address()], move || {
                server.server_mut().kill();
                Ok(server.restart()?)
            })
        }),
        ("mysql (MariaDB)", || {
            let mut server = MariaDb::start_durable()?;
            with("mysql (MariaDB)", server.url(), [server.address()], move || {
                server.server_mut().kill();
                Ok(server.restart()?)
            })
        }),
        ("redis, no persistence", || redis("redis, no persistence", Redis::start()?)),
        ("redis, AOF always", || redis("redis, AOF always", Redis::start_durable()?)),
        ("redlock, 3 nodes, AOF always", || {
            use fencelock::redlock::{RedlockConfig, RedlockOperator};
            let mut nodes = RedisNodes::start_durable(3)?;
            let url = format!("redlock://{}", nodes.addresses());
            let operator = RedlockOperator::new(RedlockConfig::from_url(&fencelock::EngineUrl::parse(&url)?)?)?;
            tokio::runtime::Handle::current().block_on(operator.init(0))?;
            let addresses: Vec<_> = nodes.nodes().iter().map(Redis::address).collect();
            with("redlock, 3 nodes, AOF always", url, addresses, move || {
                for node in nodes.nodes_mut() {
                    node.server_mut().kill();
                }
                Ok(nodes.nodes_mut().iter_mut().try_for_each(Redis::restart)?)
            })
        }),
        ("etcd, 3 members", || {
            let mut members = Etcd::start_members(3)?;
            let addresses = (0..3).map(|at| members.endpoint(at)).collect::<Result<Vec<_>, _>>()?;
            let all: Vec<_> = addresses.iter().map(SocketAddr::to_string).collect();
            with("etcd, 3 members", format!("etcd://{}", all.join(",")), addresses, move || {
                let leader = members.leader()?;
                members.kill(leader)?;
                Ok(members.restart(leader)?)
            })
        }),
        ("zookeeper, 1 server", || {
            let mut server = ZooKeeper::start()?;
            let url = format!("zookeeper://{}?session=2s", server.address());
            with("zookeeper, 1 server", url, [server.address()], move || {
                server.server_mut().kill();
                Ok(server.restart()?)
            })
        }),
    ]
}
