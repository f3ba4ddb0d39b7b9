#![cfg_attr(feature = "sqlite", doc = include_str!("../README.md"))]
#![cfg_attr(
    not(feature = "sqlite"),
    doc = "Distributed locks with fencing tokens, built without an engine on a service."
)]

mod builder;
mod config;
mod deployments;
mod engines;
pub mod guides;
mod merge;
mod recommend;
mod registry;

pub use builder::Builder;
pub use config::{Config, Environment};
pub use deployments::deployments;
#[doc(inline)]
pub use fencelock_core::*;
/// The engine on etcd, with its own configuration and the test of ownership for transactions of one's own.
#[cfg(feature = "etcd")]
#[doc(inline)]
pub use fencelock_etcd as etcd;
/// The engine on Redis, with its own configuration and its gate.
#[cfg(feature = "redis")]
#[doc(inline)]
pub use fencelock_redis as redis;
/// The engine on a majority of Redis nodes, with its own configuration and what its operator does.
#[cfg(feature = "redlock")]
#[doc(inline)]
pub use fencelock_redlock as redlock;
/// The engine on SQL databases, with its own configuration, its gates, and locks in the caller's own transaction.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
#[doc(inline)]
pub use fencelock_sql as sql;
/// The engine on ZooKeeper, with its own configuration and the test of ownership in a `multi`.
#[cfg(feature = "zookeeper")]
#[doc(inline)]
pub use fencelock_zookeeper as zookeeper;
pub use recommend::{DoubleRun, Need, Recommendation, ResourceCheck, Service, recommend};
pub use registry::{Connecting, Registry, Target};

/// A client of the lock service at `url`.
///
/// # URLs
/// | URL | engine | cargo feature |
/// |---|---|---|
/// | `memory:` | one in this process; each connect is a server of its own, so share the client and not the URL | always there |
/// | `sqlite:PATH` | a SQLite file on this host | `sqlite`, the default |
/// | `postgres://host/DATABASE`, `postgresql://` | PostgreSQL | `postgres`, and `tls` for `sslmode` |
/// | `mysql://host/DATABASE`, `mariadb://` | MySQL or MariaDB | `mysql`, and `tls` for `sslmode` |
/// | `etcd://h1,h2,h3/PREFIX` | etcd, by as many of its members as are named | `etcd`, and `tls` for `tls=true` |
/// | `redis://host/DB` | one Redis | `redis` |
/// | `rediss://host/DB` | the same through TLS | `redis`, `tls` |
/// | `redis+sentinel://h1,h2/MASTER` | the master of that name | `redis` |
/// | `redis+cluster://h1,h2` | a Redis Cluster | `redis` |
/// | `redlock://h1,h2,h3/DB` | a majority of independent Redis nodes, after `fencelock redlock init` | `redlock` |
/// | `zookeeper://h1,h2/ROOT`, `zk://` | a ZooKeeper ensemble, with everything under the node `/ROOT` | `zookeeper` |
///
/// Any of them may go on with `?` and parameters, joined by `&`. These are the
/// same for all; others are the engine's own, and one that nobody knows is an error.
///
/// | parameter | value | see |
/// |---|---|---|
/// | `ttl` | `30s` | [`Builder::ttl`] |
/// | `wait_at_most` | `5s`, `forever` | [`Builder::wait_at_most`] |
/// | `max_hold` | `10m` | [`Builder::max_hold`] |
/// | `lock_delay` | `2s` | [`Builder::lock_delay`] |
/// | `cohort` | `8` | [`Builder::cohort`] |
/// | `require` | `advisory`, `leased`, `fenced`, `replicated` | [`Builder::require`] |
/// | `require_capability` | capabilities, comma separated | [`Builder::require_capability`] |
/// | `forbid` | `T1` to `T4`, comma separated | [`Builder::forbid`] |
/// | `attest` | rule ids, comma separated | [`Builder::attest`] |
/// | `on_degraded` | `warn`, `refuse` | [`Builder::on_degraded`] |
/// | `reprobe` | `60s` | [`Builder::reprobe`] |
/// | `clock_drift` | parts per million | [`Builder::clock_drift`] |
/// | `holder` | who this program says it is | [`Builder::holder`] |
/// | `username`, `password`, `password_file` | where there are hosts | [`Config`](Config#passwords) |
///
/// In a user or password before the hosts `/`, `?`, `@` and `#` are written `%2F`, `%3F`, `%40` and `%23`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> fencelock::Result<()> {
/// let locks = fencelock::connect("memory:?ttl=10s&require=advisory").await?;
/// let guard = locks.acquire("orders/1001").await?;
/// assert!(locks.try_acquire("orders/1001").await?.is_none());
/// guard.release().await?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// As for [`Builder::connect`].
///
/// # Cancel safety
/// Dropping the future leaves nothing locked.
pub async fn connect(url: impl AsRef<str>) -> Result<LockClient> {
    builder(url).connect().await
}

/// Options for a client of the lock service at `url`, set in code.
///
/// What is set in code counts over the same thing in the URL. What is wrong
/// with the URL is told by [`Builder::connect`].
///
/// ```
/// use fencelock::{ErrorKind, Level};
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let refused = fencelock::builder("memory:").require(Level::Fenced).connect().await;
/// assert_eq!(refused.unwrap_err().kind(), ErrorKind::Refused);
/// # }
/// ```
pub fn builder(url: impl AsRef<str>) -> Builder {
    Builder::new(url.as_ref())
}
