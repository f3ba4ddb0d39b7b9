//! One hold in the lock table.

use crate::table::{LockTable, Place};
use async_trait::async_trait;
use fencelock_core::{
    Claim, Error, ErrorKind, Evidence, FencingToken, Lease, LocalHold, LossReason, Renew, Renewal, Result, Validity,
    extend_by_renewing, keep_alive_by_renewing,
};
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct SqlLease {
    table: Arc<dyn LockTable>,
    claim: Claim,
    token: FencingToken,
    /// Wakes the first local waiter when the lease goes.
    _hold: LocalHold,
    /// Under which others may have heard of the claim.
    _place: Option<Arc<dyn Place>>,
}

impl SqlLease {
    pub(crate) fn new(
        table: Arc<dyn LockTable>,
        claim: Claim,
        token: FencingToken,
        hold: LocalHold,
        place: Option<Arc<dyn Place>>,
    ) -> Self {
        Self { table, claim, token, _hold: hold, _place: place }
    }
}

/// One renewal at once, for a caller who waits for it.
struct AtOnce<'l>(&'l SqlLease);

#[async_trait]
impl Renew for SqlLease {
    async fn renew(&self, server_ttl: Duration) -> Result<Renewal> {
        self.table.renew(&self.claim, self.token, server_ttl, false).await.map(renewal)
    }
}

#[async_trait]
impl Renew for AtOnce<'_> {
    async fn renew(&self, server_ttl: Duration) -> Result<Renewal> {
        self.0.table.renew(&self.0.claim, self.0.token, server_ttl, true).await.map(renewal)
    }
}

const fn renewal(renewed: bool) -> Renewal {
    if renewed { Renewal::Renewed } else { Renewal::Refused }
}

#[async_trait]
impl Lease for SqlLease {
    async fn keep_alive(&self, validity: &Validity) -> LossReason {
        keep_alive_by_renewing(self, validity).await
    }

    async fn extend(&self, ttl: Duration, validity: &Validity) -> Result<()> {
        extend_by_renewing(&AtOnce(self), ttl, validity).await
    }

    async fn release(self: Box<Self>) -> Result<()> {
        if self.claim.is_unanswered() {
            self.table.void(&self.claim).await?;
        }
        if self.table.free(&self.claim, Some(self.token), "release").await? {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Lost, "the lock was no longer ours")
            .with_engine(self.table.engine())
            .with_operation("release")
            .with_name(self.claim.name()))
    }

    /// `table`, `claim_id` (hexadecimal) and `token`, where the lock does not pass on: the row holds while it has this claim and `expires_at <> 0`.
    fn evidence(&self) -> Evidence {
        Evidence::none()
            .with("table", self.table.name())
            .with("claim_id", self.claim.id().to_string())
            .with("token", self.token.to_string())
    }
}
