//! Two statements through sqlx, on one connection to a file of its own: in the
//! engine's, they would be seen as another process's.

use super::id;
use crate::contender::{Contender, TTL, Task, ours};
use crate::failure::Result;
use crate::server::Place;
use async_trait::async_trait;
use sqlx::ConnectOptions as _;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous};
use std::time::{SystemTime, UNIX_EPOCH};

struct Floor {
    pool: SqlitePool,
}

struct Floored {
    pool: SqlitePool,
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
    let pool = SqlitePoolOptions::new().max_connections(1).test_before_acquire(false);
    Ok(Box::new(Floor { pool: pool.connect_with(options.disable_statement_logging()).await? }))
}

#[async_trait]
impl Contender for Floor {
    async fn task(&self, name: &str) -> Result<Box<dyn Task>> {
        Ok(Box::new(Floored { pool: self.pool.clone(), name: name.as_bytes().to_vec(), id: [0; 16] }))
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
        Ok(acquire.fetch_optional(&self.pool).await?.is_some())
    }

    async fn release(&mut self) -> Result<()> {
        let free = sqlx::query(include_str!("sql/sqlite-free.sql")).bind(&self.name[..]).bind(&self.id[..]);
        let freed = free.fetch_optional(&self.pool).await?.is_some();
        if freed { Ok(()) } else { Err("it was not held".into()) }
    }
}
