//! Waiting until replicas have a grant. It narrows the window of a fail-over, and closes none.

use crate::config::RedisConfig;
use crate::failure::Failure;
use crate::keys::NameKeys;
use crate::link::{Events, Link, lock};
use crate::open::Opener;
use crate::router::Router;
use redis::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tokio::time::Instant;

/// Connections of their own: `WAIT` blocks the one that it is sent on.
pub(crate) struct Replicas {
    config: Arc<RedisConfig>,
    links: Mutex<HashMap<String, Arc<tokio::sync::Mutex<Link>>>>,
}

impl Replicas {
    pub(crate) fn new(config: &Arc<RedisConfig>) -> Self {
        Self { config: Arc::clone(config), links: Mutex::default() }
    }

    /// How many replicas acknowledge what the lock's master has written until now.
    ///
    /// `WAIT` counts from the last write *of its own connection*, so one is made
    /// there first; replication is in order, and the grant was written before it.
    /// (<https://redis.io/docs/latest/commands/wait/>)
    pub(crate) async fn acknowledged(&self, router: &Router, keys: &NameKeys) -> Result<u32, Failure> {
        let limit = self.config.request_timeout;
        let deadline = Instant::now() + limit;
        let (place, opener) = match router.address_of(keys.slot(), deadline).await? {
            Some(address) => (format!("{}:{}", address.0, address.1), Opener::to(&self.config, address)),
            None => (String::new(), Opener::to_master(&self.config)),
        };
        let link = {
            let open = || Arc::new(tokio::sync::Mutex::new(Link::new(opener, Events::default())));
            Arc::clone(lock(&self.links).entry(place).or_insert_with(open))
        };
        // One at a time: a second would only wait behind the first at the server.
        let Ok(link) = tokio::time::timeout_at(deadline, link.lock()).await else {
            return Err(Failure::no_answer());
        };
        let mut write = redis::cmd("SET");
        write.arg(keys.sync()).arg("").arg("PX").arg(60_000);
        link.call(&write, deadline).await?;
        // The server's own limit ends first, so that its answer still comes in time.
        let rest = deadline.saturating_duration_since(Instant::now()).mul_f64(0.8).as_millis();
        let mut wait = redis::cmd("WAIT");
        wait.arg(self.config.wait_replicas).arg(u64::try_from(rest).unwrap_or(1).max(1));
        match link.call(&wait, deadline).await? {
            Value::Int(replicas) => Ok(u32::try_from(replicas).unwrap_or(0)),
            _ => Err(Failure::odd_answer()),
        }
    }
}
