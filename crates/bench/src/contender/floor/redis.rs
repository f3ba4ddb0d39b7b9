//! Two scripts through redis-rs, on one multiplexed connection.

use super::id;
use crate::contender::{Contender, TTL, Task};
use crate::failure::Result;
use crate::server::Place;
use async_trait::async_trait;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, IntoConnectionInfo as _, Script};
use std::sync::Arc;

/// A connection with the settings that the engine has.
pub(in crate::contender) async fn open(address: &str) -> Result<MultiplexedConnection> {
    let info = format!("redis://{address}").into_connection_info()?;
    let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
    let options = AsyncConnectionConfig::new().set_response_timeout(None).set_pipeline_buffer_size(1_024);
    Ok(redis::Client::open(info)?.get_multiplexed_async_connection_with_config(&options).await?)
}

struct Floor {
    connection: MultiplexedConnection,
    acquire: Arc<Script>,
    free: Arc<Script>,
}

struct Floored {
    connection: MultiplexedConnection,
    acquire: Arc<Script>,
    free: Arc<Script>,
    lock: String,
    id: String,
    hold: String,
}

pub(super) async fn connect(place: &Place) -> Result<Box<dyn Contender>> {
    let connection = open(place.addresses.first().ok_or("no address")?).await?;
    let acquire = Arc::new(Script::new(include_str!("redis/acquire.lua")));
    let free = Arc::new(Script::new(include_str!("redis/free.lua")));
    Ok(Box::new(Floor { connection, acquire, free }))
}

#[async_trait]
impl Contender for Floor {
    async fn task(&self, name: &str) -> Result<Box<dyn Task>> {
        Ok(Box::new(Floored {
            connection: self.connection.clone(),
            acquire: Arc::clone(&self.acquire),
            free: Arc::clone(&self.free),
            lock: format!("floor:{{{name}}}:lock:{name}"),
            id: String::new(),
            hold: String::new(),
        }))
    }
}

#[async_trait]
impl Task for Floored {
    async fn acquire(&mut self) -> Result<()> {
        if self.attempt().await? { Ok(()) } else { Err("it is held".into()) }
    }

    async fn attempt(&mut self) -> Result<bool> {
        self.id = format!("{:032x}", id());
        let ttl = TTL.as_millis().to_string();
        let mut acquire = self.acquire.prepare_invoke();
        acquire.key("floor:fence").key("floor:dead").key(&self.lock);
        acquire.arg(&self.id).arg(ttl).arg("0 7 bench:1");
        let answer: redis::Value = acquire.invoke_async(&mut self.connection).await?;
        let redis::Value::Int(token @ 1..) = answer else { return Ok(false) };
        self.hold = format!("{} {token} ", self.id);
        Ok(true)
    }

    async fn release(&mut self) -> Result<()> {
        let mut free = self.free.prepare_invoke();
        free.key(&self.lock).arg(&self.hold);
        let freed: i64 = free.invoke_async(&mut self.connection).await?;
        if freed == 1 { Ok(()) } else { Err("it was not held".into()) }
    }
}
