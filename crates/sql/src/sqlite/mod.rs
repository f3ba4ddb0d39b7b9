//! SQLite: one file, one host.

mod config;
mod failure;
mod filesystem;
mod frame;
mod gate;
mod opening;
mod probe;
mod renewals;
mod schema;
mod session;
mod store;
#[cfg(target_os = "linux")]
mod watch;

pub use config::{SqliteConfig, Synchronous};
pub use gate::{SqliteGate, SqlitePass, SqliteTransaction};

pub(crate) use frame::Frame;
pub(crate) use store::{Store, foreign_wait};
