//! The engine in memory: the reference, to be read first.
//!
//! Locks live in a [`MemoryServer`] of this process; each [`MemoryLock`] on it is
//! one client's engine. It keeps every promise of the contract, in the order of
//! asking, and can be made to misbehave as real services do: see
//! [`MemoryServer::inject`], [`MemoryServer::set_down`] and
//! [`MemoryServer::set_hung`]. Its level is `Advisory`: it excludes nobody
//! outside its process and is gone with it.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> fencelock_core::Result<()> {
//! use fencelock_core::{LockClient, memory::MemoryLock};
//!
//! let locks = LockClient::new(std::sync::Arc::new(MemoryLock::new()))?;
//! let guard = locks.acquire("orders/1001").await?;
//! assert!(locks.try_acquire("orders/1001").await?.is_none());
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```

mod engine;
mod faults;
mod gate;
mod lease;
mod server;
mod table;
mod voids;

pub use engine::MemoryLock;
pub use faults::{Delivery, Operation};
pub use gate::{MemoryGate, MemoryPass};
pub use server::MemoryServer;
