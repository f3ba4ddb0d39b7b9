//! MySQL and MariaDB.

mod bundle;
mod config;
mod failure;
mod gate;
mod opening;
mod probe;
mod purge;
mod renew;
mod schema;
mod statement;
mod store;
mod transaction;

pub use crate::server::Tls;
pub use config::MySqlConfig;
pub use gate::{MySqlGate, MySqlPass, MySqlTransaction};

pub(crate) use store::Store;
