#![doc = include_str!("../README.md")]

mod admin;
mod bundle;
mod config;
mod ears;
mod engine;
mod failure;
mod gate;
mod keys;
mod lease;
mod link;
mod mail;
mod node;
mod open;
mod post;
mod probe;
mod replicas;
mod router;
mod script;
mod slots;
mod standing;
mod store;
#[cfg(feature = "tls")]
mod tls;
mod waiting;
mod words;

pub use config::RedisConfig;
pub use engine::RedisLock;
pub use gate::{Effect, RedisGate, RedisPass};
pub use node::{Node, NodeBundle, NodeFailure, NodeScript, NodeVerb};
pub use post::{Leaving, NodeWords, Posts, WordsOf};
/// The client library, for the values that an [`Effect`] answers with.
pub use redis;
