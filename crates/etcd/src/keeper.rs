//! The task that keeps one lease alive, from its grant to its end.
//!
//! A keepalive leaves at a third of the ttl, and at a tenth when one was not
//! answered, on a stream that is opened anew after any break. Its answer counts
//! from before it was sent. An answer with a ttl of 0 says that the lease is gone.

use crate::failure::{Failure, Refusal};
use crate::look;
use crate::members::Members;
use crate::pool::{Open, forget, retire};
use crate::shared::{Proof, Shared, State};
use crate::sync::lock;
use etcd_client::{LeaseGrantOptions, LeaseKeepAliveStream, LeaseKeeper};
use fencelock_core::Moment;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// The longest that a lease is kept for nobody.
const IDLE: Duration = Duration::from_secs(10);
/// The pause before a grant that failed is tried again.
const REST: Duration = Duration::from_millis(100);

/// Whatever ends the keeper, be it a panic or its runtime, is the end of the lease to those who hold by it.
struct Supervised(Arc<Shared>, Open);

impl Drop for Supervised {
    fn drop(&mut self) {
        self.0.end(Failure::Refused(Refusal::NoLease));
        forget(&mut lock(&self.1), &self.0);
    }
}

struct Keeper {
    shared: Arc<Shared>,
    members: Arc<Members>,
    open: Open,
    stream: Option<(usize, LeaseKeeper, LeaseKeepAliveStream)>,
    /// Tells when a stream of watches was opened anew, and may have missed something.
    rebuilt: watch::Receiver<u64>,
}

/// Grants the lease, keeps it alive while it is used, and revokes it when it is not.
pub(crate) async fn keep(shared: Arc<Shared>, members: Arc<Members>, open: Open, rebuilt: watch::Receiver<u64>) {
    let supervised = Supervised(Arc::clone(&shared), Arc::clone(&open));
    let mut keeper = Keeper { shared, members, open, stream: None, rebuilt };
    if let Some(proof) = keeper.grant().await {
        keeper.shared.proved(proof);
        let ended = keeper.run(proof).await;
        if ended.is_none() {
            let revoke = |mut client: etcd_client::Client| async move { client.lease_revoke(proof.id).await };
            // One that is not revoked runs out.
            let revoked = keeper.members.call(None, revoke).await;
            tracing::debug!(target: "fencelock", engine = "etcd", lease = proof.id, revoked = revoked.is_ok(), "idle lease revoked");
        }
        keeper.shared.end(ended.unwrap_or(Failure::Refused(Refusal::NoLease)));
    }
    drop(supervised);
}

impl Keeper {
    /// None if it was refused, or nobody wants it any more.
    async fn grant(&mut self) -> Option<Proof> {
        let span = self.shared.span;
        loop {
            // Under an id of ours, so that a repeated grant cannot make a second lease.
            let id = fastrand::i64(1..=i64::MAX);
            let sent = self.shared.clock.now();
            let options = LeaseGrantOptions::new().with_id(id);
            let grant = |mut client: etcd_client::Client| {
                let options = options.clone();
                async move { client.lease_grant(span.seconds, Some(options)).await }
            };
            let failure = match self.members.call(None, grant).await {
                Ok(granted) => {
                    let ttl = self.holders_part(granted.ttl());
                    tracing::debug!(target: "fencelock", engine = "etcd", lease = id, asked_s = span.seconds,
                        granted_s = granted.ttl(), "lease granted");
                    return Some(Proof { id, ttl, sent });
                }
                Err(failure) => failure,
            };
            // A repeated grant is ours, but with which ttl is not known. It runs out.
            if failure.is_final() && !failure.is_repeated_grant() {
                self.shared.end(failure);
                return None;
            }
            self.shared.state.send_replace(State::Opening(Some(failure.to_string().into())));
            if self.shared.users() == 0 && retire(&self.open, &self.shared) {
                return None;
            }
            tokio::time::sleep(REST).await;
        }
    }

    /// What is left of the server's ttl when the lock delay is taken off.
    fn holders_part(&self, granted: i64) -> Duration {
        Duration::from_secs(u64::try_from(granted).unwrap_or(0)).saturating_sub(self.shared.span.delay)
    }

    /// Keeps it alive; none when nobody uses it any more, else what ended it.
    async fn run(&mut self, mut proof: Proof) -> Option<Failure> {
        let clock = self.shared.clock.clone();
        self.rebuilt.mark_unchanged();
        let mut idle: Option<(Moment, u64)> = None;
        loop {
            if let State::Ended(why) = self.shared.state() {
                return Some(why);
            }
            let now = clock.now();
            let mut due = proof.sent.plus(proof.ttl / 3);
            if self.shared.hurry.swap(false, Ordering::SeqCst) {
                due = now;
            }
            if self.shared.users() == 0 {
                let uses = self.shared.uses();
                // A use that has begun and ended meanwhile was a use.
                let since = idle.filter(|(_, before)| *before == uses).map_or(now, |(since, _)| since);
                idle = Some((since, uses));
                let until = since.plus(IDLE.min(proof.ttl / 2));
                let over = now >= until || self.shared.closing.load(Ordering::SeqCst);
                if over && retire(&self.open, &self.shared) {
                    return None;
                }
                due = due.min(until);
            } else {
                idle = None;
            }
            if now < due {
                tokio::select! {
                    () = tokio::time::sleep(due.since(now)) => {}
                    () = self.shared.wake.notified() => {}
                    // Ends with the client's watches; then nobody holds any more.
                    Ok(()) = self.rebuilt.changed() => look::begin(&self.shared, &self.members, proof.id),
                }
                continue;
            }
            let mut renewed = self.renew(proof).await;
            if let Err(Failure::Refused(Refusal::OldToken)) = renewed {
                // By now there is a new token: newer servers ask for one with each keepalive.
                renewed = self.renew(proof).await;
            }
            match renewed {
                Ok(renewed) => {
                    proof = renewed;
                    self.shared.proved(proof);
                    look::begin(&self.shared, &self.members, proof.id);
                }
                Err(failure @ Failure::Refused(Refusal::NoLease)) => return Some(failure),
                Err(failure) => {
                    self.shared.doubted(&failure);
                    tokio::time::sleep(proof.ttl / 10).await;
                    // A proof that is overdue is asked for at once.
                    self.shared.hurry.store(true, Ordering::SeqCst);
                }
            }
        }
    }

    /// One keepalive, on the stream that is open or a new one.
    async fn renew(&mut self, proof: Proof) -> Result<Proof, Failure> {
        let limit = (proof.ttl / 5).min(self.members.limit());
        let sent = self.shared.clock.now();
        // The stream is put back only with its answer taken, so that no answer is paired with a later question.
        let stream = self.stream.take();
        let member = stream.as_ref().map_or_else(|| self.members.current(), |(member, _, _)| *member);
        let asked = async {
            match stream {
                Some((member, mut keeper, mut answers)) => {
                    keeper.keep_alive().await.map_err(|e| Failure::of(&e))?;
                    let answer = answers.message().await.map_err(|e| Failure::of(&e))?;
                    let answer = answer.ok_or_else(|| Failure::Unknown("the keepalives' stream ended".to_owned()))?;
                    let ttl = self.members.check(member, answer)?.ttl();
                    if ttl <= 0 {
                        return Err(self.members.no_lease(member).await);
                    }
                    Ok(((member, keeper, answers), Some(ttl)))
                }
                None => {
                    let open = |mut client: etcd_client::Client| async move { client.lease_keep_alive(proof.id).await };
                    let (keeper, answers) = self.members.ask(member, None, open).await?;
                    // The library keeps the first answer to itself, having seen that its ttl is above 0.
                    Ok(((member, keeper, answers), None))
                }
            }
        };
        let answered = timeout(limit, asked).await.unwrap_or_else(|_| Err(Failure::timed_out(limit)));
        match answered {
            Ok((stream, ttl)) => {
                self.stream = Some(stream);
                let ttl = ttl.map_or(proof.ttl, |ttl| self.holders_part(ttl).min(proof.ttl));
                Ok(Proof { sent, ttl, ..proof })
            }
            Err(failure) => {
                self.members.doubt(member);
                if failure == Failure::Refused(Refusal::OldToken) {
                    // Slow by design, and of no use when given up: it may take longer than a keepalive.
                    self.members.refresh(member, proof.ttl / 2).await;
                } else {
                    self.members.pass_over(member);
                }
                Err(failure)
            }
        }
    }
}
