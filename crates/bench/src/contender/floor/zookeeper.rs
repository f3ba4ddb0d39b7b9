//! Creation and listing sent together, then the deletion, through zookeeper-client in one session.

use super::id;
use crate::contender::{Contender, TTL, Task};
use crate::failure::Result;
use crate::server::Place;
use async_trait::async_trait;
use zookeeper_client::{Acls, Client, CreateMode};

struct Floor {
    client: Client,
}

struct Floored {
    client: Client,
    queue: String,
    node: String,
}

/// A session of its own.
pub(in crate::contender) async fn session(place: &Place) -> Result<Client> {
    let address = place.addresses.first().ok_or("no address")?;
    Ok(Client::connector().with_session_timeout(TTL).connect(address).await?)
}

pub(super) async fn connect(place: &Place) -> Result<Box<dyn Contender>> {
    Ok(Box::new(Floor { client: session(place).await? }))
}

#[async_trait]
impl Contender for Floor {
    async fn task(&self, name: &str) -> Result<Box<dyn Task>> {
        let queue = format!("/floor/{}", name.replace('/', "_"));
        self.client.mkdir(&queue, &CreateMode::Persistent.with_acls(Acls::anyone_all())).await?;
        Ok(Box::new(Floored { client: self.client.clone(), queue, node: String::new() }))
    }
}

#[async_trait]
impl Task for Floored {
    async fn acquire(&mut self) -> Result<()> {
        let path = format!("{}/{:032x}-", self.queue, id());
        let mode = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let (creation, listing) =
            (self.client.create(&path, b"holder=bench:1\n", &mode), self.client.list_children(&self.queue));
        let (created, listed) = tokio::join!(creation, listing);
        self.node = format!("{path}{}", created?.1);
        if listed?.len() == 1 { Ok(()) } else { Err("it is held".into()) }
    }

    /// Looks who is there, which is all that an attempt at a held lock needs.
    async fn attempt(&mut self) -> Result<bool> {
        if !self.client.list_children(&self.queue).await?.is_empty() {
            return Ok(false);
        }
        self.acquire().await?;
        Ok(true)
    }

    async fn release(&mut self) -> Result<()> {
        Ok(self.client.delete(&self.node, None).await?)
    }
}
