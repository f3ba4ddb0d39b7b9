//! zookeeper-client's own recipe, in one session.

use crate::contender::floor::session;
use crate::contender::{Contender, Task};
use crate::failure::Result;
use crate::server::Place;
use async_trait::async_trait;
use zookeeper_client::{Acls, Client, CreateMode, LockPrefix, OwnedLockClient};

struct Peer {
    client: Client,
}

struct Locks {
    client: Client,
    queue: String,
    held: Option<OwnedLockClient>,
}

pub(super) async fn connect(place: &Place) -> Result<Box<dyn Contender>> {
    Ok(Box::new(Peer { client: session(place).await? }))
}

#[async_trait]
impl Contender for Peer {
    async fn task(&self, name: &str) -> Result<Box<dyn Task>> {
        let queue = format!("/peer/{}", name.replace('/', "_"));
        self.client.mkdir(&queue, &CreateMode::Persistent.with_acls(Acls::anyone_all())).await?;
        Ok(Box::new(Locks { client: self.client.clone(), queue, held: None }))
    }
}

#[async_trait]
impl Task for Locks {
    async fn acquire(&mut self) -> Result<()> {
        let prefix = LockPrefix::new_curator(&self.queue, "lock-")?;
        let lock = self.client.lock(prefix, b"", Acls::anyone_all()).await?;
        self.held = Some(lock.into_owned());
        Ok(())
    }

    async fn release(&mut self) -> Result<()> {
        // It has no other way: a task of its own deletes the node, and nobody hears whether it did.
        drop(self.held.take().ok_or("nothing is held")?);
        Ok(())
    }
}
