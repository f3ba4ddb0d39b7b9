#![doc = include_str!("../README.md")]

mod attempt;
mod config;
mod connect;
mod engine;
mod evidence;
mod failure;
mod keeper;
mod keys;
mod layout;
mod lease;
mod members;
mod operator;
mod pool;
mod probe;
mod queue;
mod shared;
mod sync;
mod tickets;
mod undo;
mod value;
mod watches;

pub use config::EtcdConfig;
pub use engine::EtcdLock;
/// The client library whose types [`OwnedInEtcd`] speaks.
pub use etcd_client;
pub use evidence::OwnedInEtcd;
