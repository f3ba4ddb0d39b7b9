#![doc = include_str!("../README.md")]

mod admin;
mod admit;
mod ask;
mod config;
mod ears;
mod engine;
mod keys;
mod lease;
mod meta;
mod operate;
mod probe;
mod reseed;
mod scripts;
mod set;
mod tally;
mod tokens;

pub use config::RedlockConfig;
pub use engine::RedlockLock;
pub use operate::{NodeState, NodeStatus, RedlockOperator, SetStatus};
