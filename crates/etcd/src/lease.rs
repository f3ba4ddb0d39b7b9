//! One hold.

use crate::engine::Inner;
use crate::failure::{Failure, Refusal};
use crate::holds::Registered;
use crate::shared::Shared;
use crate::undo::Freed;
use crate::watches::Place;
use async_trait::async_trait;
use fencelock_core::{Claim, Error, ErrorKind, Evidence, Lease, LossReason, Result, Validity};
use std::sync::Arc;
use std::time::Duration;

/// How long a hold lasts before its loss is watched for. A shorter one costs no watch, and no loss is missed.
const WATCHED_AFTER: Duration = Duration::from_millis(30);
/// The pause after a look that did not find it gone.
const REST: Duration = Duration::from_millis(100);

pub(crate) struct EtcdLease {
    inner: Arc<Inner>,
    claim: Claim,
    shared: Arc<Shared>,
    id: i64,
    place: Arc<Place>,
    created: i64,
    seen: i64,
}

impl EtcdLease {
    pub(crate) fn new(inner: Arc<Inner>, claim: Claim, shared: Arc<Shared>, id: i64, created: i64, seen: i64) -> Self {
        let place = Place::at(inner.keys.place(claim.name(), claim.id()));
        Self { inner, claim, shared, id, place, created, seen }
    }

    /// Asks whether the place is there as it was made, and at which revision; not at once again after a yes.
    async fn look(&self) -> Result<(bool, i64), Failure> {
        let there = self.inner.is_there(&self.place.key, self.created).await;
        if !matches!(there, Ok((false, _))) {
            tokio::time::sleep(REST).await;
        }
        there
    }

    /// None if the lease ended meanwhile.
    async fn unless_ended<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            _ = self.shared.until_ended() => None,
            done = work => Some(done),
        }
    }
}

impl Drop for EtcdLease {
    /// Whoever of this client stands behind a hold that is lost looks by itself: its place may be gone already.
    fn drop(&mut self) {
        self.inner.tickets.leave(self.claim.id());
    }
}

fn lost() -> Error {
    Error::new(ErrorKind::Lost, "the lock was no longer ours").with_engine("etcd")
}

#[async_trait]
impl Lease for EtcdLease {
    async fn keep_alive(&self, validity: &Validity) -> LossReason {
        let _registered = Registered::new(&self.shared, validity, &self.place);
        // What is rare is boxed: many holds are kept, and nearly all of them wait to be told.
        let mut go_on = Box::pin(self.unless_ended(tokio::time::sleep(WATCHED_AFTER))).await.is_some();
        let mut seen = self.seen;
        while go_on {
            let _ear = self.inner.watches.listen_to_all(&self.place, seen);
            // By the watch, by a safety look, or by the end of the lease.
            self.place.told.notified().await;
            match Box::pin(self.unless_ended(self.look())).await {
                Some(Ok((true, revision))) => seen = revision,
                Some(Ok((false, _))) => return LossReason::Revoked,
                // Not known: what the keepalives prove counts until it is.
                Some(Err(_)) => {}
                None => go_on = false,
            }
        }
        LossReason::SessionEnded
    }

    async fn extend(&self, ttl: Duration, validity: &Validity) -> Result<()> {
        let proof = async {
            let proof = self.shared.renewed_from_now(self.claim.clock()).await?;
            let (there, _) = self.inner.is_there(&self.place.key, self.created).await?;
            Ok::<_, Failure>(there.then_some(proof))
        };
        let limit = self.inner.members.limit();
        let proof = tokio::time::timeout(limit, proof).await.map_err(|_| Failure::timed_out(limit))??;
        let proof = proof.ok_or_else(lost)?;
        if ttl > proof.ttl {
            let message = format!("this hold's session has a ttl of {:?}; for a longer one acquire anew", proof.ttl);
            return Err(Error::new(ErrorKind::Unsupported, message).with_engine("etcd"));
        }
        validity.extended(proof.sent, ttl);
        Ok(())
    }

    async fn release(self: Box<Self>) -> Result<()> {
        let freed = self.inner.free(&self.claim, &self.place.key, self.created, self.id).await;
        match freed {
            Ok(freed) => {
                self.inner.tickets.remove(self.claim.id());
                match freed {
                    Freed::Yes => Ok(()),
                    Freed::No => Err(lost()),
                    Freed::ByWhom => {
                        let message =
                            "an answer was lost, and the lock is free: by this release, or it was lost before";
                        Err(Error::new(ErrorKind::Unavailable, message).with_engine("etcd"))
                    }
                }
            }
            // Its lease is gone, and whatever names it with it.
            Err(Failure::Refused(Refusal::NoLease)) => {
                self.inner.tickets.remove(self.claim.id());
                Err(lost())
            }
            Err(failure) => Err(failure.into()),
        }
    }

    fn evidence(&self) -> Evidence {
        Evidence::none()
            .with("key", &*self.place.key)
            .with("mod_revision", self.created.to_string())
            .with("lease", self.id.to_string())
    }
}
