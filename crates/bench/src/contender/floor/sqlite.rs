//! Two statements through sqlx, on one connection to a file of its own: in the
//! engine's, they would be seen as another process's.
//!
//! All rows are asked for, as ours must: asked for one, the driver hands it out
//! before the statement's commit, with its wait for the disk, and tells nobody
//! when that fails.

use super::connections::{Connection, Connections};
use super::id;
use crate::contender::{Contender, TTL, Task, ours};
use crate::failure::Result;
use crate::server::Place;
use async_trait::async_trait;
use sqlx::ConnectOptions as _;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use std::time::{SystemTime, UNIX_EPOCH};

struct Floor {
    connections: Connections<SqliteConnection>,
}

struct Floored {
    connection: Connection<SqliteConnection>,
    name: Vec<u8>,
    id: [u8; 16],
}

pub(super) async fn connect(place: &Place) -> Result<Box<dyn Contender>> {
    let file = place.file().with_file_name("floor.db");
    // It makes the tables.
    let own = Place::new(place.engine, &format!("sqlite:{}", file.display()));
    ours::client(&own, TTL).await?.close().await;
    let options = SqliteConnectOptions::new().filename(file);
    let options = options.journal_mode(SqliteJournalMode::Wal).synchronous(SqliteSynchronous::Full);
    let connection = options.disable_statement_logging().connect().await?;
    Ok(Box::new(Floor { connections: Connections::new([connection]) }))
}

#[async_trait]
impl Contender for Floor {
    async fn task(&self, name: &str) -> Result<Box<dyn Task>> {
        Ok(Box::new(Floored {
            connection: self.connections.next().ok_or("no connection")?,
            name: name.as_bytes().to_vec(),
            id: [0; 16],
        }))
    }
}

#[async_trait]
impl Task for Floored {
    async fn acquire(&mut self) -> Result<()> {
        if self.attempt().await? { Ok(()) } else { Err("it is held".into()) }
    }

    async fn attempt(&mut self) -> Result<bool> {
        self.id = id().to_be_bytes();
        let (now, ttl) = (i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros())?, TTL.as_micros());
        let acquire = sqlx::query(include_str!("sql/sqlite-acquire.sql")).bind(&self.name[..]).bind(&self.id[..]);
        let acquire = acquire.bind(now).bind(now).bind(i64::try_from(ttl)?).bind("frame");
        let acquire = acquire.bind("bench:1").bind(None::<&str>).bind(now).bind(0_i64);
        Ok(!acquire.fetch_all(&mut *self.connection.lock().await).await?.is_empty())
    }

    async fn release(&mut self) -> Result<()> {
        let free = sqlx::query(include_str!("sql/sqlite-free.sql")).bind(&self.name[..]).bind(&self.id[..]);
        let freed = free.fetch_all(&mut *self.connection.lock().await).await?;
        if !freed.is_empty() { Ok(()) } else { Err("it was not held".into()) }
    }
}
