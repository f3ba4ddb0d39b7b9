//! The floors: what each engine sends for an acquire and a release, with the same
//! guarantees (an expiry, a token, no late copy of a request), sent raw through the
//! client library that the engine uses, one command for each of them.
//!
//! The scripts and statements beside these files are the engines', as they are when
//! one lock is taken at a time. What an engine does to send less is not in them.

mod connections;
mod etcd;
mod memory;
mod mysql;
mod postgres;
mod redis;
mod redlock;
mod sqlite;
mod zookeeper;

pub(super) use redis::open;
pub(super) use zookeeper::session;

use super::Contender;
use crate::engine::Engine;
use crate::failure::Result;
use crate::server::Place;

pub(super) async fn connect(place: &Place) -> Result<Box<dyn Contender>> {
    match place.engine {
        Engine::Memory => Ok(Box::new(memory::Floor::default())),
        Engine::Sqlite => sqlite::connect(place).await,
        Engine::Postgres => postgres::connect(place).await,
        Engine::Mysql => mysql::connect(place).await,
        Engine::Redis => redis::connect(place).await,
        Engine::Redlock => redlock::connect(place).await,
        Engine::Etcd => etcd::connect(place).await,
        Engine::Zookeeper => zookeeper::connect(place).await,
    }
}

/// A new claim's id.
fn id() -> u128 {
    fastrand::u128(..)
}
