//! `GET_LOCK`, on a connection of a pool for as long as it is held.

use crate::contender::{Contender, Task};
use crate::failure::Result;
use crate::server::Place;
use async_trait::async_trait;
use sqlx::mysql::{MySqlConnectOptions, MySqlPool, MySqlPoolOptions};
use sqlx::pool::PoolConnection;
use sqlx::{ConnectOptions as _, MySql, Row as _};

struct Peer {
    pool: MySqlPool,
}

struct Locks {
    pool: MySqlPool,
    name: String,
    held: Option<PoolConnection<MySql>>,
}

pub(super) async fn connect(place: &Place) -> Result<Box<dyn Contender>> {
    let options = place.url.parse::<MySqlConnectOptions>()?.disable_statement_logging();
    let pool = MySqlPoolOptions::new().max_connections(10).test_before_acquire(false).connect_with(options).await?;
    Ok(Box::new(Peer { pool }))
}

#[async_trait]
impl Contender for Peer {
    async fn task(&self, name: &str) -> Result<Box<dyn Task>> {
        Ok(Box::new(Locks { pool: self.pool.clone(), name: name.to_owned(), held: None }))
    }
}

impl Locks {
    async fn get(&mut self, seconds: i64) -> Result<bool> {
        let mut connection = self.pool.acquire().await?;
        let query = sqlx::query("SELECT GET_LOCK(?, ?) = 1").bind(self.name.clone()).bind(seconds);
        let got: Option<bool> = query.fetch_one(&mut *connection).await?.try_get(0)?;
        if got == Some(true) {
            self.held = Some(connection);
        }
        Ok(got == Some(true))
    }
}

#[async_trait]
impl Task for Locks {
    async fn acquire(&mut self) -> Result<()> {
        if self.get(60).await? { Ok(()) } else { Err("it is held".into()) }
    }

    async fn attempt(&mut self) -> Result<bool> {
        self.get(0).await
    }

    async fn release(&mut self) -> Result<()> {
        let mut connection = self.held.take().ok_or("nothing is held")?;
        let query = sqlx::query("SELECT RELEASE_LOCK(?) = 1").bind(self.name.clone());
        let freed: Option<bool> = query.fetch_one(&mut *connection).await?.try_get(0)?;
        if freed == Some(true) { Ok(()) } else { Err("it was not held".into()) }
    }
}
