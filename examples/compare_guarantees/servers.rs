//! A server of each kind, and how it is hurt.

#[cfg(feature = "servers")]
use crate::{Fault, here};
use crate::{Outcome, Place};

type Start = fn() -> Outcome<Place>;

/// None without the cargo feature `servers`.
#[cfg(not(feature = "servers"))]
pub(crate) fn servers() -> Vec<(&'static str, Start)> {
    Vec::new()
}

/// Those that the crate `lab` starts for tests. Alice reaches them by ways that can be cut.
#[cfg(feature = "servers")]
pub(crate) fn servers() -> Vec<(&'static str, Start)> {
    use fencelock_lab::{Etcd, MariaDb, Mood, Postgres, Proxy, Redis, RedisNodes, ZooKeeper};
    use std::net::SocketAddr;

    /// `restart` kills the server, or what is to be killed of several, and starts it again.
    fn with(
        name: &'static str,
        url: String,
        addresses: impl IntoIterator<Item = SocketAddr>,
        mut restart: impl FnMut() -> Outcome + Send + 'static,
    ) -> Outcome<Place> {
        let (mut alices, mut ways) = (url.clone(), Vec::new());
        for address in addresses {
            let way = Proxy::before(address)?;
            alices = alices.replace(&address.to_string(), &format!("127.0.0.1:{}", way.port()));
            ways.push(way);
        }
        let suffer = move |fault| match fault {
            Fault::Begins => {
                ways.iter().for_each(|way| way.set(Mood::Refuse));
                restart()
            }
            Fault::Ends => {
                ways.iter().for_each(|way| way.set(Mood::Honest));
                Ok(())
            }
        };
        Ok(Place { alices: Some(alices), suffer: Some(Box::new(suffer)), ..here(name, url) })
    }
    fn redis(name: &'static str, mut redis: Redis) -> Outcome<Place> {
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
