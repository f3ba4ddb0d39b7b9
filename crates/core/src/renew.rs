//! Lifts a lease that can only renew once.

use crate::{LossReason, Result, Validity};
use async_trait::async_trait;
use std::time::Duration;

/// What a renewal came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Renewal {
    /// The server counts the ttl anew.
    Renewed,
    /// The claim does not hold the lock any more.
    Refused,
}

/// A lease that can be renewed once.
#[async_trait]
pub trait Renew: Send + Sync {
    /// Asks the server to count `server_ttl` anew, if the claim still holds the
    /// lock. Never creates, never takes back from another, and never makes the
    /// hold end sooner than it would: a request may arrive late.
    ///
    /// # Errors
    /// Any error means *unknown*: it is asked again until the deadline.
    async fn renew(&self, server_ttl: Duration) -> Result<Renewal>;
}

/// Renews at a third of the ttl, and at a tenth when no answer came, until the
/// hold is refused or its deadline has passed. A fixed lease is left alone.
/// For [`Lease::keep_alive`](crate::Lease::keep_alive).
///
/// # Cancel safety
/// Dropping the future stops the renewals; one under way may still arrive.
pub async fn keep_alive_by_renewing<L: Renew + ?Sized>(lease: &L, validity: &Validity) -> LossReason {
    if !validity.renews() {
        return std::future::pending().await;
    }
    while validity.is_held() {
        validity.sleep_until(validity.renewal_due()).await;
        let sent = validity.now();
        match tokio::time::timeout(validity.request_limit(), lease.renew(validity.server_ttl())).await {
            Ok(Ok(Renewal::Renewed)) => {
                validity.renewed(sent);
                continue;
            }
            Ok(Ok(Renewal::Refused)) => return LossReason::Revoked,
            Ok(Err(e)) => validity.doubt(&e),
            Err(_) => validity.doubt(&"a renewal was not answered in time"),
        }
        validity.sleep_until(validity.now().plus(validity.retry_pause())).await;
    }
    LossReason::Expired
}

/// Extends a fixed lease by renewing it once. For [`Lease::extend`](crate::Lease::extend).
///
/// # Errors
/// `Lost` if the claim holds the lock no more; otherwise what the renewal failed with.
///
/// # Cancel safety
/// Dropping the future leaves the old deadline in force.
pub async fn extend_by_renewing<L: Renew + ?Sized>(lease: &L, ttl: Duration, validity: &Validity) -> Result<()> {
    let sent = validity.now();
    match lease.renew(ttl.saturating_add(validity.claim().lock_delay())).await? {
        Renewal::Renewed => {
            validity.extended(sent, ttl);
            Ok(())
        }
        Renewal::Refused => {
            Err(crate::Error::new(crate::ErrorKind::Lost, "the lock was no longer ours").with_operation("extend"))
        }
    }
}
