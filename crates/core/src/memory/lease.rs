//! One hold on a server in memory.

use super::engine::MemoryLock;
use super::faults::Operation;
use crate::{
    Claim, Error, ErrorKind, Evidence, Lease, LossReason, Renew, Renewal, Result, Validity, extend_by_renewing,
    keep_alive_by_renewing,
};
use async_trait::async_trait;
use std::time::Duration;

pub(super) struct MemoryLease {
    engine: MemoryLock,
    claim: Claim,
}

impl MemoryLease {
    pub(super) fn new(engine: MemoryLock, claim: Claim) -> Self {
        Self { engine, claim }
    }
}

#[async_trait]
impl Renew for MemoryLease {
    async fn renew(&self, server_ttl: Duration) -> Result<Renewal> {
        let (name, id) = (self.claim.name().clone(), self.claim.id());
        let renewed =
            self.engine.call(Operation::Renew, move |table, now| table.renew(&name, id, server_ttl, now)).await?;
        Ok(if renewed { Renewal::Renewed } else { Renewal::Refused })
    }
}

#[async_trait]
impl Lease for MemoryLease {
    async fn keep_alive(&self, validity: &Validity) -> LossReason {
        keep_alive_by_renewing(self, validity).await
    }

    async fn extend(&self, ttl: Duration, validity: &Validity) -> Result<()> {
        extend_by_renewing(self, ttl, validity).await
    }

    async fn release(self: Box<Self>) -> Result<()> {
        let claim = self.claim.clone();
        if self.engine.call(Operation::Release, move |table, now| table.release(&claim, now)).await? {
            Ok(())
        } else {
            Err(Error::new(ErrorKind::Lost, "the lock was no longer ours"))
        }
    }

    fn evidence(&self) -> Evidence {
        Evidence::none()
    }
}
