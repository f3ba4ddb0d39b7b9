#![doc = include_str!("../README.md")]

mod answer;
mod attempt;
mod config;
mod connect;
mod engine;
mod evidence;
mod failure;
mod holds;
mod identity;
#[cfg(test)]
mod idle_tests;
mod keeper;
mod keys;
mod layout;
mod lease;
mod look;
mod member;
mod members;
mod operator;
mod pool;
mod probe;
mod queue;
mod rules;
mod shared;
mod sync;
mod tickets;
mod undo;
mod value;
mod version;
mod watches;

pub use config::EtcdConfig;
pub use engine::EtcdLock;
/// The client library whose types [`OwnedInEtcd`] speaks.
pub use etcd_client;
pub use evidence::OwnedInEtcd;
