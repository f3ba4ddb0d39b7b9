//! One hold in Redis.

use crate::engine::Shared;
use crate::store::Held;
use async_trait::async_trait;
use fencelock_core::{
    Error, ErrorKind, Evidence, Lease, LocalHold, LossReason, Renew, Renewal, Result, Validity, extend_by_renewing,
};
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct RedisLease {
    shared: Arc<Shared>,
    held: Arc<Held>,
    /// Wakes the first local waiter when the lease goes.
    _hold: LocalHold,
}

impl RedisLease {
    pub(crate) fn new(shared: Arc<Shared>, held: Held, hold: LocalHold) -> Self {
        Self { shared, held: Arc::new(held), _hold: hold }
    }
}

#[async_trait]
impl Renew for RedisLease {
    async fn renew(&self, server_ttl: Duration) -> Result<Renewal> {
        let renewed = self.shared.store.renew(&self.held, server_ttl).await?;
        Ok(if renewed { Renewal::Renewed } else { Renewal::Refused })
    }
}

#[async_trait]
impl Lease for RedisLease {
    async fn keep_alive(&self, validity: &Validity) -> LossReason {
        self.shared.batcher.keep_alive(&self.shared.store, &self.held, validity).await
    }

    async fn extend(&self, ttl: Duration, validity: &Validity) -> Result<()> {
        extend_by_renewing(self, ttl, validity).await
    }

    async fn release(self: Box<Self>) -> Result<()> {
        let Held { claim, keys, .. } = &*self.held;
        if self.shared.store.free(claim, keys, claim.is_unanswered()).await? {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Lost, "the lock was no longer ours")
            .with_engine("redis")
            .with_operation("release")
            .with_name(claim.name()))
    }

    /// `key`, `claim_id` (hexadecimal) and `token`: the hash under `key` has these as its `id` and `token` while we hold.
    fn evidence(&self) -> Evidence {
        let Held { claim, keys, token } = &*self.held;
        Evidence::none()
            .with("key", keys.lock())
            .with("claim_id", claim.id().to_string())
            .with("token", token.to_string())
    }
}
