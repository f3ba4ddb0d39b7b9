//! The crate rslock: Redlock without a token, on one server or several.

use crate::contender::{Contender, TTL, Task};
use crate::failure::Result;
use crate::server::Place;
use async_trait::async_trait;
use rslock::{Lock, LockError, LockManager};

struct Peer {
    manager: LockManager,
}

struct Locks {
    manager: LockManager,
    once: LockManager,
    name: String,
    held: Option<Lock>,
}

pub(super) fn connect(place: &Place) -> Result<Box<dyn Contender>> {
    let clients = place.addresses.iter().map(|address| redis::Client::open(format!("redis://{address}")));
    let manager = LockManager::from_clients(clients.collect::<Result<_, _>>()?);
    Ok(Box::new(Peer { manager }))
}

#[async_trait]
impl Contender for Peer {
    async fn task(&self, name: &str) -> Result<Box<dyn Task>> {
        let mut once = self.manager.clone();
        once.set_retry(1, TTL);
        Ok(Box::new(Locks { manager: self.manager.clone(), once, name: name.to_owned(), held: None }))
    }
}

#[async_trait]
impl Task for Locks {
    async fn acquire(&mut self) -> Result<()> {
        self.held = Some(self.manager.acquire_no_guard(self.name.as_str(), TTL).await?);
        Ok(())
    }

    async fn attempt(&mut self) -> Result<bool> {
        match self.once.lock(self.name.as_str(), TTL).await {
            Ok(lock) => self.held = Some(lock),
            Err(LockError::Unavailable) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }

    async fn release(&mut self) -> Result<()> {
        let held = self.held.take().ok_or("nothing is held")?;
        self.manager.unlock(&held).await;
        Ok(())
    }
}
