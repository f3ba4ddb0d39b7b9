//! Two statements through sqlx, on as many connections as the engine has.

use super::connections::{Connection, Connections};
use super::id;
use crate::contender::{Contender, TTL, Task, ours};
use crate::failure::Result;
use crate::server::Place;
use async_trait::async_trait;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Executor as _, Row as _};
use std::sync::Arc;

const NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

struct Floor {
    connections: Connections<PgConnection>,
    acquire: Arc<str>,
    free: Arc<str>,
}

struct Floored {
    connection: Connection<PgConnection>,
    acquire: Arc<str>,
    free: Arc<str>,
    name: Vec<u8>,
    id: [u8; 16],
}

fn fill(sql: &str) -> Arc<str> {
    let sql = sql.replace("{now}", NOW).replace("{locks}", "fencelock_locks");
    sql.replace("{voids}", "fencelock_locks_voids").into()
}

pub(super) async fn connect(place: &Place) -> Result<Box<dyn Contender>> {
    // It makes the tables.
    drop(ours::client(place, TTL).await?);
    let options = place.url.parse::<PgConnectOptions>()?.disable_statement_logging();
    // The server bounds each statement of ours, which costs it the setting of a timer.
    let bounds = "SET statement_timeout = 2000; SET lock_timeout = 200";
    let mut connections = Vec::new();
    for _ in 0..4 {
        let mut connection = options.connect().await?;
        connection.execute(bounds).await?;
        connections.push(connection);
    }
    let connections = Connections::new(connections);
    let acquire = fill(include_str!("sql/postgres-acquire.sql"));
    let free = fill(include_str!("sql/postgres-free.sql"));
    Ok(Box::new(Floor { connections, acquire, free }))
}

#[async_trait]
impl Contender for Floor {
    async fn task(&self, name: &str) -> Result<Box<dyn Task>> {
        let (acquire, free) = (Arc::clone(&self.acquire), Arc::clone(&self.free));
        let name = name.as_bytes().to_vec();
        let connection = self.connections.next().ok_or("no connection")?;
        Ok(Box::new(Floored { connection, acquire, free, name, id: [0; 16] }))
    }
}

#[async_trait]
impl Task for Floored {
    async fn acquire(&mut self) -> Result<()> {
        if self.attempt().await? { Ok(()) } else { Err("it is held".into()) }
    }

    async fn attempt(&mut self) -> Result<bool> {
        let id = id();
        self.id = id.to_be_bytes();
        let ttl = i64::try_from(TTL.as_micros())?;
        let query = sqlx::query(AssertSqlSafe(Arc::clone(&self.acquire))).bind(&self.name[..]).bind(&self.id[..]);
        let query = query.bind(1_i64).bind(ttl).bind("bench:1").bind(None::<&str>);
        // Half of the id, as it comes: it is only a number that nobody else uses.
        let number = i64::from_be_bytes(id.to_be_bytes().first_chunk().copied().unwrap_or_default());
        let rows = query.bind(number).bind("200").bind(0_i64).fetch_all(&mut *self.connection.lock().await).await?;
        let row = rows.first().ok_or("no row")?;
        Ok(row.try_get::<Option<i64>, _>("taken")?.is_some())
    }

    async fn release(&mut self) -> Result<()> {
        let query = sqlx::query(AssertSqlSafe(Arc::clone(&self.free))).bind(&self.name[..]).bind(&self.id[..]);
        let rows = query.bind("channel").fetch_all(&mut *self.connection.lock().await).await?;
        if rows.len() == 1 { Ok(()) } else { Err("it was not held".into()) }
    }
}
