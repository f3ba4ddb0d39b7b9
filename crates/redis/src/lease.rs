//! One hold in Redis.

use crate::engine::Shared;
use crate::mail::Place;
use async_trait::async_trait;
use fencelock_core::group::Renewing;
use fencelock_core::{
    Claim, Error, ErrorKind, Evidence, FencingToken, Lease, LocalHold, LossReason, Renew, Renewal, Result, Validity,
    extend_by_renewing,
};
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct RedisLease {
    shared: Arc<Shared>,
    claim: Claim,
    token: FencingToken,
    /// Wakes the first local waiter when the lease goes.
    _hold: LocalHold,
    /// What is told late of this claim is not given back.
    _place: Option<Box<Place>>,
}

impl RedisLease {
    pub(crate) fn new(
        shared: Arc<Shared>,
        claim: Claim,
        token: FencingToken,
        hold: LocalHold,
        place: Option<Place>,
    ) -> Self {
        Self { shared, claim, token, _hold: hold, _place: place.map(Box::new) }
    }
}

#[async_trait]
impl Renew for RedisLease {
    async fn renew(&self, server_ttl: Duration) -> Result<Renewal> {
        let store = &self.shared.store;
        let hold = Renewing { claim: &self.claim, token: self.token, server_ttl };
        let renewed = store.renew(&[hold], store.deadline()).await?;
        Ok(if renewed.first() == Some(&true) { Renewal::Renewed } else { Renewal::Refused })
    }
}

#[async_trait]
impl Lease for RedisLease {
    async fn keep_alive(&self, validity: &Validity) -> LossReason {
        self.shared.renewals.keep_alive(self.token, validity).await
    }

    async fn extend(&self, ttl: Duration, validity: &Validity) -> Result<()> {
        extend_by_renewing(self, ttl, validity).await
    }

    async fn release(self: Box<Self>) -> Result<()> {
        let (claim, store) = (&self.claim, &self.shared.store);
        if store.release(claim, &store.keys.of(claim.name()), self.token).await? {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Lost, "the lock was no longer ours")
            .with_engine("redis")
            .with_operation("release")
            .with_name(claim.name()))
    }

    /// None: Redis has no transaction of the caller's own to test it in. [`RedisGate`](crate::RedisGate) asks the token.
    fn evidence(&self) -> Evidence {
        Evidence::none()
    }
}
