//! One hold.

use crate::config::invalid;
use crate::failure::Failure;
use crate::session::Session;
use crate::sessions::Inner;
use crate::watching;
use async_trait::async_trait;
use fencelock_core::{Claim, Error, ErrorKind, Evidence, Lease, LossReason, Result, Validity};
use std::sync::Arc;
use std::time::Duration;
use zookeeper_client::OneshotWatcher;

pub(crate) struct ZooKeeperLease {
    pub(crate) engine: Arc<Inner>,
    pub(crate) session: Arc<Session>,
    pub(crate) claim: Claim,
    pub(crate) path: Box<str>,
    /// The transaction that made the node.
    pub(crate) czxid: i64,
}

fn lost() -> Error {
    Error::new(ErrorKind::Lost, "the lock was no longer ours")
}

impl ZooKeeperLease {
    /// A watch on the node; none once that is known to be gone, or the session to have ended.
    async fn watch(&self) -> Option<OneshotWatcher> {
        tokio::select! {
            biased;
            () = self.session.until_ended() => None,
            watcher = self.watch_in_session() => watcher,
        }
    }

    async fn watch_in_session(&self) -> Option<OneshotWatcher> {
        let session = &self.session;
        loop {
            match session.call(session.client.get_and_watch_data(&self.path)).await {
                Ok((_, stat, watcher)) if stat.czxid == self.czxid => return Some(watcher),
                Ok(_) | Err(Failure::NoNode) => return None,
                // Not known: the heartbeats tell whether there is still a session, this only when to ask again.
                Err(_) => {
                    tokio::time::sleep(session.tempo.patience()).await;
                    if session.connected().await.is_err() {
                        continue;
                    }
                }
            }
        }
    }
}

#[async_trait]
impl Lease for ZooKeeperLease {
    async fn keep_alive(&self, validity: &Validity) -> LossReason {
        let session = &self.session;
        let _registered = session.holds.register(validity);
        // A heartbeat may have been answered between the grant and now.
        validity.renewed(session.proved(validity.now()));
        // What is rare is boxed: many holds are kept, and nearly all of them wait for their watch.
        while let Some(watcher) = Box::pin(self.watch()).await {
            // Told or ended: what is there now is asked in either case.
            let _ = watching::changed(session, watcher).await;
        }
        // The node goes with its session too, and then that is the reason.
        if session.has_ended() || Box::pin(session.fresh(Duration::ZERO)).await.is_err() && session.has_ended() {
            return LossReason::SessionEnded;
        }
        LossReason::Revoked
    }

    async fn extend(&self, ttl: Duration, validity: &Validity) -> Result<()> {
        let longest = self.session.tempo.session.saturating_sub(self.claim.lock_delay());
        if ttl > longest {
            return Err(invalid(format!("a hold in this session is extended by at most {longest:?}")));
        }
        let session = &self.session;
        let sent = validity.now();
        let stat = session.client.check_stat(&self.path);
        let (beaten, stat) = tokio::join!(session.fresh(Duration::ZERO), session.call(stat));
        if stat?.is_none_or(|stat| stat.czxid != self.czxid) {
            return Err(lost());
        }
        beaten?;
        // The margin comes off again, so that `ttl` from now is what is left, as far as the session reaches.
        let reach = longest.saturating_sub(sent.since(session.proved(sent)));
        validity.extended(sent, (ttl + session.tempo.margin).min(reach));
        Ok(())
    }

    async fn release(self: Box<Self>) -> Result<()> {
        if self.session.has_ended() {
            return Err(Error::new(ErrorKind::Unavailable, "the session has ended"));
        }
        // The path has the claim's id in it, so it is this claim's node that goes, or none.
        let was_ours = self.session.gone(self.session.client.delete(&self.path, None)).await?;
        if self.claim.is_unanswered() {
            self.engine.voids.insert(self.claim.id());
            let queue = self.session.keys.queue(self.claim.name());
            self.session.purge(&queue, self.claim.id()).await?;
        }
        if was_ours { Ok(()) } else { Err(lost()) }
    }

    /// `path`: the node; `czxid`: the transaction that made it.
    fn evidence(&self) -> Evidence {
        Evidence::none().with("path", &*self.path).with("czxid", self.czxid.to_string())
    }
}
