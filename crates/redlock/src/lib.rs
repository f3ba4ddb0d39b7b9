#![doc = include_str!("../README.md")]

mod admin;
mod admit;
mod answers;
mod ask;
mod config;
mod debts;
mod ears;
mod engine;
mod holders;
mod keys;
mod lease;
mod looks;
mod member;
mod meta;
mod numbers;
mod operate;
mod probe;
mod questions;
mod renewal;
mod reseed;
mod scripts;
mod sent;
mod set;
mod tally;
mod tokens;
mod votes;

pub use config::RedlockConfig;
pub use engine::RedlockLock;
pub use operate::{NodeState, NodeStatus, RedlockOperator, SetStatus};
