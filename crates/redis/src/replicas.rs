//! Waiting until replicas have a grant. It narrows the window of a fail-over, and closes none.

use crate::config::{Address, RedisConfig};
use crate::failure::Failure;
use crate::link::{Events, Link, lock};
use crate::open::Opener;
use redis::Cmd;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

/// The most grants of one client that wait for replicas at a time.
const LINKS: usize = 16;

/// Connections of their own: `WAIT` blocks the one that it is sent on. It also
/// counts for that one only, up to the last write that was made there, so grant
/// and `WAIT` go together. (<https://redis.io/docs/latest/commands/wait/>)
pub(crate) struct Replicas {
    config: Arc<RedisConfig>,
    idle: Mutex<HashMap<Option<Address>, Vec<Link>>>,
    permits: Semaphore,
}

/// A connection that nobody else uses meanwhile. Dropped, it closes: a `WAIT` may be under way there.
pub(crate) struct Lent<'a> {
    pool: &'a Replicas,
    to: Option<Address>,
    pub(crate) link: Link,
    _permit: SemaphorePermit<'a>,
}

impl Replicas {
    pub(crate) fn new(config: &Arc<RedisConfig>) -> Self {
        Self { config: Arc::clone(config), idle: Mutex::default(), permits: Semaphore::new(LINKS) }
    }

    /// A connection to that node, or to whoever is master.
    pub(crate) async fn lend(&self, to: Option<Address>, deadline: Instant) -> Result<Lent<'_>, Failure> {
        let Ok(Ok(permit)) = timeout_at(deadline, self.permits.acquire()).await else {
            return Err(Failure::not_reached("all connections wait for replicas"));
        };
        let idle = lock(&self.idle).get_mut(&to).and_then(Vec::pop);
        let link = idle.unwrap_or_else(|| {
            let opener = match &to {
                Some(address) => Opener::to(&self.config, address.clone()),
                None => Opener::to_master(&self.config),
            };
            Link::new(opener, Events::default())
        });
        Ok(Lent { pool: self, to, link, _permit: permit })
    }
}

impl Lent<'_> {
    /// Whatever was sent is answered: the next one may have it.
    pub(crate) fn give_back(self) {
        lock(&self.pool.idle).entry(self.to.clone()).or_default().push(self.link.clone());
    }
}

/// The server's own limit ends before ours, so that its answer still comes in time.
pub(crate) fn wait(replicas: u32, deadline: Instant) -> Cmd {
    let rest = deadline.saturating_duration_since(Instant::now()).mul_f64(0.8).as_millis();
    let mut wait = redis::cmd("WAIT");
    wait.arg(replicas).arg(u64::try_from(rest).unwrap_or(1).max(1));
    wait
}
