//! SQLite: one file, one host.

mod bundle;
mod config;
mod failure;
mod filesystem;
mod frame;
mod gate;
mod opening;
mod probe;
mod purge;
mod renew;
mod row;
mod schema;
mod session;
mod store;
mod transaction;
#[cfg(target_os = "linux")]
mod watch;

pub use config::{SqliteConfig, Synchronous};
pub use gate::{SqliteGate, SqlitePass, SqliteTransaction};

pub(crate) use store::Store;
