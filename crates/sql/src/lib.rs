#![doc = include_str!("../README.md")]

#[cfg(feature = "sqlite")]
mod engine;
#[cfg(feature = "sqlite")]
mod lease;
#[cfg(feature = "sqlite")]
mod row;
#[cfg(feature = "sqlite")]
pub mod sqlite;

#[cfg(feature = "sqlite")]
pub use engine::SqlLock;
