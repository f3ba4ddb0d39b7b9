//! The binary `fencelock`, run as a user runs it.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod audit;
#[cfg(feature = "redis")]
mod audit_servers;
mod background;
mod codes;
mod contention;
mod history;
mod loss;
mod operators;
#[cfg(feature = "redlock")]
mod redlock;
mod secrets;
#[cfg(any(
    feature = "etcd",
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "redlock",
    feature = "zookeeper"
))]
mod servers;
mod shapes;
mod signals;
mod strays;
mod supervisor;
mod support;
mod terminal;
mod watch;
