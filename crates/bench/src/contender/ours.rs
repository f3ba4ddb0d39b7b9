//! fencelock itself, as a program uses it: a client by URL, and guards.

use super::{Contender, Task};
use crate::engine::Engine;
use crate::failure::Result;
use crate::server::Place;
use async_trait::async_trait;
use fencelock::{Builder, LockClient, LockGuard, NamedLock};
use std::time::Duration;

/// How often a lease passes on where it does.
const COHORT: u32 = 100;

/// A client of ours.
pub(crate) struct Ours {
    client: LockClient,
}

impl Ours {
    pub(crate) fn of(client: LockClient) -> Self {
        Self { client }
    }
}

struct Locks {
    lock: NamedLock,
    guard: Option<LockGuard>,
}

pub(super) async fn connect(place: &Place, ttl: Duration) -> Result<Box<dyn Contender>> {
    Ok(Box::new(Ours { client: client(place, ttl).await? }))
}

/// The same, whose leases pass on.
pub(super) async fn connect_cohort(place: &Place, ttl: Duration) -> Result<Box<dyn Contender>> {
    Ok(Box::new(Ours { client: builder(place, ttl).cohort(COHORT).connect().await? }))
}

pub(crate) async fn client(place: &Place, ttl: Duration) -> Result<LockClient> {
    Ok(builder(place, ttl).connect().await?)
}

fn builder(place: &Place, ttl: Duration) -> Builder {
    let url = match place.engine {
        // There the session is the ttl.
        Engine::Zookeeper => format!("{}?session={}ms", place.url, ttl.as_millis()),
        _ => place.url.clone(),
    };
    fencelock::builder(&url).ttl(ttl).wait_forever()
}

#[async_trait]
impl Contender for Ours {
    async fn task(&self, name: &str) -> Result<Box<dyn Task>> {
        Ok(Box::new(Locks { lock: self.client.named(name), guard: None }))
    }
}

#[async_trait]
impl Task for Locks {
    async fn acquire(&mut self) -> Result<()> {
        self.guard = Some(self.lock.acquire().await?);
        Ok(())
    }

    async fn release(&mut self) -> Result<()> {
        let guard = self.guard.take().ok_or("nothing is held")?;
        Ok(guard.release().await?)
    }

    async fn attempt(&mut self) -> Result<bool> {
        self.guard = self.lock.try_acquire().await?;
        Ok(self.guard.is_some())
    }
}
