//! Two transactions through etcd-client, on one connection and under one lease.

use super::id;
use crate::contender::{Contender, Task};
use crate::failure::Result;
use crate::server::Place;
use async_trait::async_trait;
use etcd_client::{Client, Compare, CompareOp, GetOptions, PutOptions, SortOrder, SortTarget, Txn, TxnOp};

struct Floor {
    client: Client,
    lease: i64,
}

struct Floored {
    client: Client,
    lease: i64,
    queue: String,
    key: String,
    revision: i64,
}

pub(super) async fn connect(place: &Place) -> Result<Box<dyn Contender>> {
    let mut client = Client::connect(&place.addresses, None).await?;
    let lease = client.lease_grant(3_600, None).await?.id();
    Ok(Box::new(Floor { client, lease }))
}

#[async_trait]
impl Contender for Floor {
    async fn task(&self, name: &str) -> Result<Box<dyn Task>> {
        let (client, lease, queue) = (self.client.clone(), self.lease, format!("floor/l/{name}/"));
        Ok(Box::new(Floored { client, lease, queue, key: String::new(), revision: 0 }))
    }
}

fn absent(key: &str) -> Compare {
    Compare::create_revision(key, CompareOp::Equal, 0)
}

impl Floored {
    fn first(&self, limit: i64, order: SortOrder) -> GetOptions {
        GetOptions::new().with_prefix().with_sort(SortTarget::Create, order).with_limit(limit)
    }
}

#[async_trait]
impl Task for Floored {
    async fn acquire(&mut self) -> Result<()> {
        let id = format!("{:032x}", id());
        self.key = format!("{}{id}", self.queue);
        let void = format!("floor/v/{id}");
        let newest = TxnOp::get(self.queue.as_str(), Some(self.first(2, SortOrder::Descend)));
        let under = Some(PutOptions::new().with_lease(self.lease));
        let acquire = Txn::new()
            .when([absent(&void), absent(&self.key)])
            .and_then([TxnOp::put(self.key.as_str(), "holder=bench%3A1", under), newest]);
        let answer = self.client.txn(acquire).await?;
        self.revision = answer.header().ok_or("no header")?.revision();
        if answer.succeeded() { Ok(()) } else { Err("it was not put".into()) }
    }

    /// Contention writes nothing: the put stands under the condition that nobody is in the queue.
    async fn attempt(&mut self) -> Result<bool> {
        let id = format!("{:032x}", id());
        self.key = format!("{}{id}", self.queue);
        let nobody = absent(&self.queue).with_prefix();
        let oldest = TxnOp::get(self.queue.as_str(), Some(self.first(1, SortOrder::Ascend)));
        let under = Some(PutOptions::new().with_lease(self.lease));
        let acquire = Txn::new()
            .when([absent(&format!("floor/v/{id}")), nobody])
            .and_then([TxnOp::put(self.key.as_str(), "holder=bench%3A1", under)])
            .or_else([oldest]);
        let answer = self.client.txn(acquire).await?;
        self.revision = answer.header().ok_or("no header")?.revision();
        Ok(answer.succeeded())
    }

    async fn release(&mut self) -> Result<()> {
        let mine = Compare::mod_revision(self.key.as_str(), CompareOp::Equal, self.revision);
        let free = Txn::new().when([mine]).and_then([TxnOp::delete(self.key.as_str(), None)]);
        if self.client.txn(free).await?.succeeded() { Ok(()) } else { Err("it was not held".into()) }
    }
}
