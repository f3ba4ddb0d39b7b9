//! `SET NX PX` and a script that deletes what is still its own, through redis-rs.

use crate::contender::floor::open;
use crate::contender::{Contender, TTL, Task};
use crate::failure::Result;
use crate::server::Place;
use async_trait::async_trait;
use redis::Script;
use redis::aio::MultiplexedConnection;
use std::sync::Arc;

const FREE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";

struct Bare {
    connection: MultiplexedConnection,
    free: Arc<Script>,
}

struct Key {
    connection: MultiplexedConnection,
    free: Arc<Script>,
    name: String,
    id: String,
}

pub(super) async fn connect(place: &Place) -> Result<Box<dyn Contender>> {
    let connection = open(place.addresses.first().ok_or("no address")?).await?;
    Ok(Box::new(Bare { connection, free: Arc::new(Script::new(FREE)) }))
}

#[async_trait]
impl Contender for Bare {
    async fn task(&self, name: &str) -> Result<Box<dyn Task>> {
        let (connection, free) = (self.connection.clone(), Arc::clone(&self.free));
        Ok(Box::new(Key { connection, free, name: name.to_owned(), id: String::new() }))
    }
}

#[async_trait]
impl Task for Key {
    async fn acquire(&mut self) -> Result<()> {
        if self.attempt().await? { Ok(()) } else { Err("it is held".into()) }
    }

    async fn attempt(&mut self) -> Result<bool> {
        self.id = format!("{:032x}", fastrand::u128(..));
        let ttl = u64::try_from(TTL.as_millis())?;
        let mut set = redis::cmd("SET");
        set.arg(&self.name).arg(&self.id).arg("NX").arg("PX").arg(ttl);
        Ok(set.query_async::<Option<String>>(&mut self.connection).await?.is_some())
    }

    async fn release(&mut self) -> Result<()> {
        let mut free = self.free.prepare_invoke();
        let freed: i64 = free.key(&self.name).arg(&self.id).invoke_async(&mut self.connection).await?;
        if freed == 1 { Ok(()) } else { Err("it was not held".into()) }
    }
}
