//! One hold on a majority of nodes.

use crate::engine::Shared;
use crate::keys::NameKeys;
use async_trait::async_trait;
use fencelock_core::{
    Claim, Error, ErrorKind, Evidence, FencingToken, Lease, LocalHold, LossReason, Renew, Renewal, Result, Validity,
    extend_by_renewing, keep_alive_by_renewing,
};
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct RedlockLease {
    shared: Arc<Shared>,
    claim: Claim,
    keys: NameKeys,
    token: FencingToken,
    /// Wakes the first local waiter when the lease goes.
    _hold: LocalHold,
}

impl RedlockLease {
    pub(crate) fn new(shared: Arc<Shared>, claim: Claim, keys: NameKeys, token: FencingToken, hold: LocalHold) -> Self {
        Self { shared, claim, keys, token, _hold: hold }
    }

    fn told(&self, e: Error, operation: &'static str) -> Error {
        e.with_engine("redlock").with_operation(operation).with_name(self.claim.name())
    }
}

#[async_trait]
impl Renew for RedlockLease {
    /// Renewed or refused by a majority; anything else is unknown.
    async fn renew(&self, server_ttl: Duration) -> Result<Renewal> {
        let set = &self.shared.set;
        let mut answers = set.renew(&self.claim, &self.keys, self.token, server_ttl);
        let (mut renewed, mut refused) = (0, 0);
        while let Some((_, answer)) = answers.next().await {
            match answer {
                Ok(true) => renewed += 1,
                Ok(false) => refused += 1,
                Err(_) => {}
            }
            if renewed >= set.majority() {
                return Ok(Renewal::Renewed);
            }
            if refused >= set.majority() {
                return Ok(Renewal::Refused);
            }
        }
        let message = format!("{renewed} of {} nodes renewed it and {refused} refused: no majority", set.size());
        Err(self.told(Error::new(ErrorKind::Unavailable, message), "renew"))
    }
}

#[async_trait]
impl Lease for RedlockLease {
    async fn keep_alive(&self, validity: &Validity) -> LossReason {
        keep_alive_by_renewing(self, validity).await
    }

    async fn extend(&self, ttl: Duration, validity: &Validity) -> Result<()> {
        extend_by_renewing(self, ttl, validity).await
    }

    async fn release(self: Box<Self>) -> Result<()> {
        let set = &self.shared.set;
        let mut answers = set.free(&self.claim, &self.keys, self.claim.is_unanswered());
        let (mut freed, mut not_held) = (0, 0);
        while let Some((_, answer)) = answers.next().await {
            match answer {
                Ok(true) => freed += 1,
                Ok(false) => not_held += 1,
                Err(_) => {}
            }
            if freed >= set.majority() {
                return Ok(());
            }
            if not_held >= set.majority() {
                return Err(self.told(Error::new(ErrorKind::Lost, "the lock was no longer ours"), "release"));
            }
        }
        let message = format!("freed on {freed} of {} nodes, not held on {not_held}: no majority", set.size());
        Err(self.told(Error::new(ErrorKind::Unavailable, message), "release"))
    }

    /// None: the nodes have no transaction of the caller's own to test it in.
    fn evidence(&self) -> Evidence {
        Evidence::none()
    }
}
