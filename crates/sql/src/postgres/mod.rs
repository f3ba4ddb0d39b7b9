//! PostgreSQL.

mod bundle;
mod config;
mod ears;
mod failure;
mod gate;
mod handing;
mod notice;
mod opening;
mod places;
mod probe;
mod purge;
mod queues;
mod renew;
mod schema;
mod statement;
mod store;
mod transaction;

pub use crate::server::Tls;
pub use config::{Pooler, PostgresConfig};
pub use gate::{PostgresGate, PostgresPass, PostgresTransaction};

pub(crate) use store::Store;
