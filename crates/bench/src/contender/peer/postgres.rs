//! sqlx's `PgAdvisoryLock`, on a connection of a pool for as long as it is held.

use crate::contender::{Contender, Task};
use crate::failure::Result;
use crate::server::Place;
use async_trait::async_trait;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgAdvisoryLock, PgAdvisoryLockGuard, PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{ConnectOptions as _, Either, Postgres};

struct Peer {
    pool: PgPool,
}

struct Locks {
    pool: PgPool,
    lock: PgAdvisoryLock,
    held: Option<PgAdvisoryLockGuard<PoolConnection<Postgres>>>,
}

pub(super) async fn connect(place: &Place) -> Result<Box<dyn Contender>> {
    let options = place.url.parse::<PgConnectOptions>()?.disable_statement_logging();
    // As many as a pool has unless told otherwise; asking each time whether one is alive would be a round trip more.
    let pool = PgPoolOptions::new().max_connections(10).test_before_acquire(false).connect_with(options).await?;
    Ok(Box::new(Peer { pool }))
}

#[async_trait]
impl Contender for Peer {
    async fn task(&self, name: &str) -> Result<Box<dyn Task>> {
        Ok(Box::new(Locks { pool: self.pool.clone(), lock: PgAdvisoryLock::new(name), held: None }))
    }
}

#[async_trait]
impl Task for Locks {
    async fn acquire(&mut self) -> Result<()> {
        let connection = self.pool.acquire().await?;
        self.held = Some(self.lock.acquire(connection).await?);
        Ok(())
    }

    async fn attempt(&mut self) -> Result<bool> {
        let connection = self.pool.acquire().await?;
        if let Either::Left(guard) = self.lock.try_acquire(connection).await? {
            self.held = Some(guard);
        }
        Ok(self.held.is_some())
    }

    async fn release(&mut self) -> Result<()> {
        self.held.take().ok_or("nothing is held")?.release_now().await?;
        Ok(())
    }
}
