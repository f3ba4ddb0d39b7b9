//! Real servers, one file each: started on free loopback ports in temporary
//! folders, stopped by process id, and hurt in between.
//!
//! A server that is missing or does not come up is an error that names the
//! package to install; nothing is skipped.

mod certificates;
mod etcd;
mod faketime;
mod mariadb;
mod netns;
mod patience;
mod pgbouncer;
mod ports;
mod postgres;
mod process;
mod proxy;
mod redis;
mod redis_cluster;
mod redis_sentinel;
mod redlock;
mod remains;
mod template;
mod zookeeper;

pub use certificates::Certificates;
pub use etcd::{Etcd, EtcdSettings};
pub use faketime::Clock;
pub use mariadb::MariaDb;
pub use netns::Network;
pub use patience::connected;
pub use pgbouncer::PgBouncer;
pub use ports::free_port;
pub use postgres::Postgres;
pub use process::{Failure, Server};
pub use proxy::{Mood, Proxy};
pub use redis::Redis;
pub use redis_cluster::RedisCluster;
pub use redis_sentinel::RedisSentinel;
pub use redlock::RedisNodes;
pub use zookeeper::{Ensemble, Place, ZooKeeper, ZooKeeperSettings};
