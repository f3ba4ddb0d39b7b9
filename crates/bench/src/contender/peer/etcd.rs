//! etcd's own `Lock` call, through etcd-client, under a lease for each task: two
//! tasks with one lease would both hold.

use crate::contender::{Contender, TTL, Task};
use crate::failure::Result;
use crate::server::Place;
use async_trait::async_trait;
use etcd_client::{Client, LockOptions};

struct Peer {
    client: Client,
}

struct Locks {
    client: Client,
    lease: i64,
    name: String,
    key: Vec<u8>,
}

pub(super) async fn connect(place: &Place) -> Result<Box<dyn Contender>> {
    Ok(Box::new(Peer { client: Client::connect(&place.addresses, None).await? }))
}

#[async_trait]
impl Contender for Peer {
    async fn task(&self, name: &str) -> Result<Box<dyn Task>> {
        let mut client = self.client.clone();
        // Nothing renews it: longer than any round.
        let lease = client.lease_grant(i64::try_from(TTL.as_secs())? * 20, None).await?.id();
        Ok(Box::new(Locks { client, lease, name: name.to_owned(), key: Vec::new() }))
    }
}

#[async_trait]
impl Task for Locks {
    async fn acquire(&mut self) -> Result<()> {
        let options = LockOptions::new().with_lease(self.lease);
        self.key = self.client.lock(self.name.as_str(), Some(options)).await?.key().to_vec();
        Ok(())
    }

    async fn release(&mut self) -> Result<()> {
        self.client.unlock(std::mem::take(&mut self.key)).await?;
        Ok(())
    }
}
