//! The peers: what one would take instead, each used as its documentation says.
//!
//! Each does less than ours in some way; [`lacks`] says in which, since that is
//! what costs or saves the difference.

mod bare;
mod elsewhere;
mod etcd;
mod mysql;
mod postgres;
#[cfg(feature = "peers")]
mod rslock;
mod zookeeper;

use super::Contender;
use super::outside::Program;
use crate::engine::Engine;
use crate::failure::Result;
use crate::server::Place;

/// Its names, and what it is that ours has and it has not.
struct Peer {
    engine: Engine,
    who: &'static str,
    lacks: &'static str,
}

const fn peer(engine: Engine, who: &'static str, lacks: &'static str) -> Peer {
    Peer { engine, who, lacks }
}

const PEERS: [Peer; 12] = [
    peer(Engine::Redis, "SET NX", "no token, no waiting, no renewal: the least that can be called a lock"),
    peer(Engine::Redis, "rslock", "no token; waits by asking again; no renewal of its own; no undo of what it gave up"),
    peer(Engine::Redis, "redis-py Lock", "no token; waits by asking again every 100 ms; no renewal"),
    peer(Engine::Redis, "redlock (npm)", "no token; waits by asking again every 200 ms; a late request can lock"),
    peer(Engine::Redlock, "rslock", "no token; waits by asking again; no renewal of its own; a late request can lock"),
    peer(Engine::Redlock, "redlock (npm)", "no token; waits by asking again every 200 ms; a late request can lock"),
    peer(
        Engine::Postgres,
        "PgAdvisoryLock",
        "no token, no expiry, no row written: it ends with the connection, and takes one for each lock; a fail-over forgets it",
    ),
    peer(
        Engine::Mysql,
        "GET_LOCK",
        "no token, no expiry, no row written: it ends with the connection, and takes one for each lock; a fail-over forgets it",
    ),
    peer(
        Engine::Etcd,
        "etcd-client lock",
        "no late request is kept off; a waiter whose lease is gone can be told that it holds; its token is not checked",
    ),
    peer(
        Engine::Zookeeper,
        "zookeeper-client lock",
        "a release is not waited for; a cancelled wait can leave its node; no deadline of its own before the session ends",
    ),
    peer(Engine::Zookeeper, "kazoo", "no token handed out; no deadline of its own"),
    peer(Engine::Zookeeper, "Curator", "no token handed out; no deadline of its own"),
];

pub(super) fn peers(engine: Engine) -> impl Iterator<Item = &'static str> {
    PEERS.iter().filter(move |peer| peer.engine == engine).map(|peer| peer.who)
}

/// What a peer does without.
pub(crate) fn lacks(engine: &str, who: &str) -> Option<&'static str> {
    PEERS.iter().find(|peer| peer.engine.name() == engine && peer.who == who).map(|peer| peer.lacks)
}

/// A peer that is a few commands and knows no waiting.
pub(super) fn is_bare(who: &str) -> bool {
    who == "SET NX"
}

pub(super) async fn connect(who: &str, place: &Place) -> Result<Box<dyn Contender>> {
    match who {
        "SET NX" => bare::connect(place).await,
        #[cfg(feature = "peers")]
        "rslock" => rslock::connect(place),
        "PgAdvisoryLock" => postgres::connect(place).await,
        "GET_LOCK" => mysql::connect(place).await,
        "etcd-client lock" => etcd::connect(place).await,
        "zookeeper-client lock" => zookeeper::connect(place).await,
        #[cfg(not(feature = "peers"))]
        "rslock" => Err("it was built without the feature `peers`".into()),
        other => Err(format!("there is no peer `{other}`").into()),
    }
}

/// The program of a peer that runs in another runtime; an error where that is not installed.
pub(super) fn program(who: &str) -> Option<Result<Program>> {
    elsewhere::program(who)
}
