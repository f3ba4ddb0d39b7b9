//! Waiting in the queue: each waits for the one just before, and asks again who is first.
//!
//! The protocol is that of the lock recipe in etcd's own client (`concurrency.Mutex`),
//! with an id for each claim in place of one key for a session, and with the own place
//! read again before it counts as a grant: a lease may run out while queued (see Jepsen's
//! report on etcd 3.4.3, 2020).

use crate::attempt::{Behind, Standing};
use crate::engine::Inner;
use crate::failure::{Failure, Refusal};
use crate::keys::claim_of;
use crate::lease::EtcdLease;
use crate::shared::{Proof, Use};
use fencelock_core::{Claim, Error, ErrorKind, FencingToken, Grant, Obstacle, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// The pause after a request without an answer.
const REST: Duration = Duration::from_millis(50);
/// How long a waiter relies on being told before it looks by itself.
const SAFETY: Duration = if cfg!(test) { Duration::from_millis(200) } else { Duration::from_secs(20) };
/// How long one waits before it asks who holds the lock.
const NAMED_AFTER: Duration = Duration::from_millis(50);

fn jitter(most: Duration) -> Duration {
    most.mul_f64(fastrand::f64())
}

/// Ends when one of so `many` who rely on being told looks by itself: all together look as often as one would alone.
async fn out_of_patience(many: impl Fn() -> usize) {
    let (began, spread) = (Instant::now(), 1.0 + fastrand::f64());
    loop {
        let due = SAFETY.saturating_mul(u32::try_from(many()).unwrap_or(u32::MAX)).mul_f64(spread);
        let left = due.saturating_sub(began.elapsed());
        if left.is_zero() {
            return;
        }
        // The others may leave meanwhile, and then it is due sooner.
        tokio::time::sleep(left.min(SAFETY * 8)).await;
    }
}

pub(crate) fn dead() -> Error {
    let message = "this claim was abandoned, released or has expired; its id is dead";
    Error::new(ErrorKind::Lost, message).with_operation("acquire")
}

/// What waiting under one id comes to.
pub(crate) enum Waited {
    Granted(Grant),
    /// The place is gone: its session ended, or an operator took it.
    Removed,
}

impl Inner {
    /// Queues under the claim's id until it is first.
    pub(crate) async fn wait(self: &Arc<Self>, claim: &Claim) -> Result<Waited> {
        self.check_endpoints()?;
        let lease = self.lease(claim);
        let mut standing = match self.enter(claim, &lease).await? {
            Some(standing) => standing,
            None => return Ok(Waited::Removed),
        };
        loop {
            let behind = match standing {
                Standing::First { created, seen } => {
                    return Ok(match lease.until_proved(claim).await {
                        Ok(proof) => Waited::Granted(self.granted(claim, &lease, proof, created, seen)),
                        Err(_) => Waited::Removed,
                    });
                }
                Standing::Behind(behind) => behind,
                Standing::Absent { .. } => return Ok(Waited::Removed),
                Standing::Dead => {
                    self.tickets.remove(claim.id());
                    return Err(dead());
                }
            };
            claim.met(Obstacle::Held(behind.holder.clone()));
            let handed = tokio::select! {
                handed = self.changed(claim, &behind) => handed,
                () = self.name_the_holder(claim), if behind.holder.is_none() => None,
                _ = lease.until_ended() => return Ok(Waited::Removed),
            };
            if let Some(seen) = handed {
                standing = Standing::First { created: behind.created, seen };
                continue;
            }
            let Some(asked) = Box::pin(self.look_again(claim, behind.created)).await? else {
                return Ok(Waited::Removed);
            };
            // A watch that ends without a change must not make a waiter spin.
            if let Standing::Behind(again) = &asked
                && again.before.is_some()
                && again.before == behind.before
            {
                tokio::time::sleep(jitter(REST)).await;
            }
            standing = asked;
        }
    }

    /// Takes the last place in the queue; none if the lease was gone.
    async fn enter(&self, claim: &Claim, lease: &Use) -> Result<Option<Standing>> {
        loop {
            let proof = match lease.until_proved(claim).await {
                Ok(proof) => proof,
                Err(Failure::Refused(Refusal::NoLease)) => return Ok(None),
                Err(failure) => return Err(failure.into()),
            };
            self.tickets.insert(claim.id(), lease);
            match self.join(claim, proof.id).await {
                Ok(standing) => return Ok(Some(standing)),
                Err(failure @ Failure::Refused(Refusal::NoLease)) => {
                    lease.end(failure);
                    return Ok(None);
                }
                Err(failure) if failure.had_no_effect() => {
                    self.tickets.refused(claim);
                    self.rest(claim, failure).await?;
                }
                Err(failure) => self.rest(claim, failure).await?,
            }
        }
    }

    async fn look_again(&self, claim: &Claim, created: i64) -> Result<Option<Standing>> {
        loop {
            match self.look(claim, created).await {
                Ok(standing) => return Ok(standing),
                Err(failure) => self.rest(claim, failure).await?,
            }
        }
    }

    /// Waits out what will pass; an error for what will not.
    async fn rest(&self, claim: &Claim, failure: Failure) -> Result<()> {
        if failure.is_final() {
            return Err(failure.into());
        }
        claim.met(Obstacle::Unreachable(failure.to_string().into()));
        tokio::time::sleep(REST / 2 + jitter(REST)).await;
        Ok(())
    }

    /// Ends when the place before is gone, or may be. Of a claim of this client the release itself tells, with the
    /// revision at which it has left the claim's place the first; any other place is watched.
    ///
    /// A claim of this client tells whatever becomes of it, be it only by its end ([`Next`](crate::tickets::Next)), so
    /// nothing has to be asked on that account, however many wait; a watch can miss an event.
    async fn changed(&self, claim: &Claim, behind: &Behind) -> Option<i64> {
        let before = behind.before.as_ref()?;
        let place = || self.keys.place(claim.name(), claim.id());
        let told =
            claim_of(before.as_bytes()).and_then(|before| self.tickets.queue_behind(before, place(), behind.created));
        if let Some(mut told) = told {
            let waiting = told.waiting();
            return tokio::select! {
                handed = told.heard() => handed,
                () = out_of_patience(|| waiting.load(Ordering::Relaxed)) => None,
            };
        }
        let ear = self.watches.listen(before, behind.seen);
        tokio::select! {
            () = ear.heard() => {}
            () = out_of_patience(|| 1) => {}
        }
        None
    }

    /// Asks once who holds the lock, for whoever gives up waiting; never ends. Most are served before it is asked.
    async fn name_the_holder(&self, claim: &Claim) {
        tokio::time::sleep(NAMED_AFTER).await;
        if let Ok(holder) = Box::pin(self.name_of_holder(claim)).await {
            claim.met(Obstacle::Held(holder));
        }
        std::future::pending().await
    }

    pub(crate) fn granted(
        self: &Arc<Self>,
        claim: &Claim,
        lease: &Use,
        proof: Proof,
        created: i64,
        seen: i64,
    ) -> Grant {
        let token = FencingToken::new(created.cast_unsigned());
        let hold = EtcdLease::new(Arc::clone(self), claim.clone(), Arc::clone(lease.shared()), proof.id, created, seen);
        if proof.ttl > claim.ttl() {
            tracing::debug!(target: "fencelock", engine = "etcd", name = %claim.name(), claim = %claim.id(),
                asked_ms = u64::try_from(claim.ttl().as_millis()).unwrap_or(u64::MAX),
                granted_ms = u64::try_from(proof.ttl.as_millis()).unwrap_or(u64::MAX),
                "granted a longer ttl: etcd counts in seconds and has a least ttl");
        }
        Grant::new(claim, hold, proof.sent, token).with_ttl(proof.ttl)
    }
}
