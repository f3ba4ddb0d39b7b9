#![doc = include_str!("../README.md")]

mod admin;
mod config;
mod engine;
mod failure;
mod founding;
mod gate;
mod heartbeat;
mod holds;
#[cfg(test)]
mod idle_tests;
mod keeper;
mod keys;
mod lease;
mod line;
mod link;
mod members;
mod probe;
mod queue;
mod session;
mod sessions;
mod tempo;
mod trail;
mod voids;
mod watching;
mod words;

pub use config::{Access, ZooKeeperConfig};
pub use engine::ZooKeeperLock;
pub use gate::InStore;
/// The client library, whose types [`InStore`] names.
pub use zookeeper_client;
