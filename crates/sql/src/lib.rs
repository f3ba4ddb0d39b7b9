#![doc = include_str!("../README.md")]

#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod bundle;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod engine;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod failure;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod lease;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod met;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod micros;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod pool;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod renewals;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod server;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod table;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod transaction;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod waiter;

#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub use engine::SqlLock;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub use transaction::{AcquireIn, TransactionHold};
