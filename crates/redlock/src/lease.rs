//! One hold on a majority of nodes.

use crate::ask::here;
use crate::engine::Shared;
use crate::keys::NameKeys;
use crate::questions::Arriving;
use crate::sent::Sent;
use async_trait::async_trait;
use fencelock_core::group::Renewing;
use fencelock_core::{
    Claim, Error, ErrorKind, Evidence, FencingToken, Lease, LocalHold, LossReason, Renew, Renewal, Result, Validity,
    extend_by_renewing,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub(crate) struct RedlockLease {
    shared: Arc<Shared>,
    claim: Claim,
    keys: Arc<NameKeys>,
    token: FencingToken,
    sent: Arc<Sent>,
    /// The longest that the nodes were asked to keep it, in milliseconds.
    longest: AtomicU64,
    /// Wakes the first local waiter when the lease goes.
    _hold: LocalHold,
}

impl RedlockLease {
    pub(crate) fn new(
        shared: Arc<Shared>,
        claim: Claim,
        keys: Arc<NameKeys>,
        token: FencingToken,
        sent: Arc<Sent>,
        hold: LocalHold,
    ) -> Self {
        Self { shared, claim, keys, token, sent, longest: AtomicU64::new(0), _hold: hold }
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
        let millis = u64::try_from(server_ttl.as_millis()).unwrap_or(u64::MAX);
        self.longest.fetch_max(millis, Ordering::SeqCst);
        let hold = Renewing { claim: &self.claim, token: self.token, server_ttl };
        let outcome = set.renew_all(&[hold], set.limit(self.claim.ttl())).await;
        match outcome.verdicts.first() {
            Some(Some(verdict)) => Ok(*verdict),
            _ => Err(self.told(set.not_renewed(outcome.answered), "extend")),
        }
    }
}

#[async_trait]
impl Lease for RedlockLease {
    async fn keep_alive(&self, validity: &Validity) -> LossReason {
        self.shared.renewals.keep_alive(self.token, validity).await
    }

    async fn extend(&self, ttl: Duration, validity: &Validity) -> Result<()> {
        extend_by_renewing(self, ttl, validity).await
    }

    /// Where too few answered to tell whether it was still ours, nobody else need wait for it: what
    /// may be left of it is on a minority, which is asked again.
    async fn release(self: Box<Self>) -> Result<()> {
        here().map_err(|e| self.told(e, "release"))?;
        let set = &self.shared.set;
        let longest = Duration::from_millis(self.longest.load(Ordering::SeqCst));
        let arriving = Arriving::after_hold(&self.claim, &self.sent);
        let mut answers =
            set.free(&self.claim, &self.keys, longest, arriving).of(&self.claim, set.config.request_timeout);
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
