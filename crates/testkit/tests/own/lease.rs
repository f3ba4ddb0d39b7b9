//! One hold in the table.

use super::Flaw;
use super::engine::{Wire, expiry};
use super::table::Row;
use async_trait::async_trait;
use fencelock_core::{
    Claim, Error, ErrorKind, Evidence, Lease, LocalHold, LossReason, Renew, Renewal, Result, Validity,
    extend_by_renewing, keep_alive_by_renewing,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(crate) struct OwnLease {
    wire: Wire,
    claim: Claim,
    _hold: LocalHold,
    skipped: AtomicBool,
}

impl OwnLease {
    pub(crate) fn new(wire: Wire, claim: Claim, hold: LocalHold) -> Self {
        Self { wire, claim, _hold: hold, skipped: AtomicBool::new(false) }
    }

    async fn renew_in(wire: &Wire, claim: &Claim, server_ttl: Duration) -> Result<Renewal> {
        let (flaw, key) = (wire.flaw, wire.key(claim.name()));
        wire.ask(|table, now| {
            table.expire(&key, now);
            let delay = if flaw == Flaw::IgnoresLockDelay { claim.lock_delay() } else { Duration::ZERO };
            let expires = expiry(flaw, now, server_ttl.saturating_sub(delay));
            match table.rows.get_mut(&key) {
                Some(row) if row.is(claim.id()) || flaw == Flaw::RenewsAnybodys => {
                    let least = if flaw == Flaw::RenewalShortens { 0 } else { row.expires };
                    row.expires = expires.max(least);
                }
                None if flaw == Flaw::RenewalRevives => {
                    let token = table.tokens.get(&key).copied().unwrap_or_default();
                    table.rows.insert(key, Row::of(claim, token, expires));
                }
                _ => return Renewal::Refused,
            }
            Renewal::Renewed
        })
        .await
    }
}

#[async_trait]
impl Renew for OwnLease {
    async fn renew(&self, server_ttl: Duration) -> Result<Renewal> {
        let renewed = Self::renew_in(&self.wire, &self.claim, server_ttl);
        match self.wire.flaw {
            // Every second renewal is said to be done.
            Flaw::RenewsHalfAsOften if !self.skipped.fetch_xor(true, Ordering::SeqCst) => Ok(Renewal::Renewed),
            Flaw::UnknownIsRenewed => Ok(tokio::time::timeout(Duration::from_millis(20), renewed)
                .await
                .unwrap_or(Ok(Renewal::Renewed))
                .unwrap_or(Renewal::Renewed)),
            Flaw::UnknownIsLost => Ok(tokio::time::timeout(Duration::from_millis(20), renewed)
                .await
                .unwrap_or(Ok(Renewal::Refused))
                .unwrap_or(Renewal::Refused)),
            Flaw::ExtendDoesNothing => Ok(Renewal::Renewed),
            _ => renewed.await,
        }
    }
}

#[async_trait]
impl Lease for OwnLease {
    async fn keep_alive(&self, validity: &Validity) -> LossReason {
        match self.wire.flaw {
            Flaw::NeverRenews => std::future::pending().await,
            Flaw::HidesRevocation => {
                keep_alive_by_renewing(self, validity).await;
                validity.until_ended().await;
                LossReason::Expired
            }
            Flaw::RenewsAfterRelease => {
                let (wire, claim, ttl) = (self.wire.clone(), self.claim.clone(), validity.server_ttl());
                tokio::spawn(async move {
                    let revived = Wire { flaw: Flaw::RenewalRevives, ..wire };
                    for _ in 0..100 {
                        let _ = Self::renew_in(&revived, &claim, ttl).await;
                        tokio::time::sleep(ttl / 4).await;
                    }
                });
                keep_alive_by_renewing(self, validity).await
            }
            _ => keep_alive_by_renewing(self, validity).await,
        }
    }

    async fn extend(&self, ttl: Duration, validity: &Validity) -> Result<()> {
        extend_by_renewing(self, ttl, validity).await
    }

    async fn release(self: Box<Self>) -> Result<()> {
        let (flaw, id, key) = (self.wire.flaw, self.claim.id(), self.wire.key(self.claim.name()));
        if flaw == Flaw::ReleaseDoesNothing {
            return Ok(());
        }
        let void = self.claim.is_unanswered() && flaw != Flaw::ReleaseDoesNotVoid;
        let freed = self
            .wire
            .ask(|table, now| {
                table.expire(&key, now);
                if void {
                    table.voids.insert(id.to_string());
                }
                let ours = flaw == Flaw::ReleasesAnybodys || table.rows.get(&key).is_some_and(|row| row.is(id));
                if ours {
                    table.rows.remove(&key);
                    if let Some(next) = table.rows.remove(&format!("{key}\u{1}next")) {
                        table.rows.insert(key, next);
                    }
                }
                ours
            })
            .await;
        let lost = || Error::new(ErrorKind::Lost, "the lock was no longer ours");
        match freed {
            Ok(true) => Ok(()),
            Ok(false) if flaw == Flaw::ReleaseSaysYes => Ok(()),
            Ok(false) => Err(lost()),
            Err(_) if flaw == Flaw::ReleaseUnknownIsLost => Err(lost()),
            Err(e) => Err(e),
        }
    }

    fn evidence(&self) -> Evidence {
        Evidence::none()
    }
}
