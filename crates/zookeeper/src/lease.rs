//! One hold.

use crate::config::invalid;
use crate::failure::Failure;
use crate::session::Session;
use crate::sessions::Inner;
use crate::watching::{self, Told};
use async_trait::async_trait;
use fencelock_core::{Claim, Error, ErrorKind, Evidence, Lease, LossReason, Result, Validity};
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;
use zookeeper_client::MultiWriteError;

pub(crate) struct ZooKeeperLease {
    pub(crate) engine: Arc<Inner>,
    pub(crate) session: Arc<Session>,
    pub(crate) claim: Claim,
    /// The last part of the node's name, as the server gave it: the rest is the claim's.
    pub(crate) sequence: Box<str>,
    /// The transaction that made the node.
    pub(crate) czxid: i64,
}

impl Drop for ZooKeeperLease {
    /// Whoever of this client is behind a hold that is lost, or was not known to be released, looks by itself.
    fn drop(&mut self) {
        self.engine.line.leave(self.claim.id());
    }
}

fn lost() -> Error {
    Error::new(ErrorKind::Lost, "the lock was no longer ours")
}

impl ZooKeeperLease {
    /// Made when it is needed: it would be most of what a hold takes of its own.
    fn path(&self) -> String {
        format!("{}{}", self.session.keys.place(&self.claim), self.sequence)
    }

    /// Deletes the node, and hands the lock to a claim of this client that is next: false if there was none to delete.
    ///
    /// The path has the claim's id in it, so it is this claim's node that goes, or none.
    async fn free(&self) -> Result<bool, Failure> {
        let path = self.path();
        if let Some(next) = self.engine.line.next_of(self.claim.id())
            && self.free_before(&path, &next.path).await?
        {
            next.hand_over();
            return Ok(true);
        }
        self.session.gone(self.session.client.delete(&path, None)).await
    }

    /// Deletes the node if that of the next is there: then that one is first, in the same step. A node is written
    /// once, so its version is 0.
    async fn free_before(&self, path: &str, next: &str) -> Result<bool, Failure> {
        let mut both = self.session.client.new_multi_writer();
        if both.add_check_version(next, 0).and_then(|()| both.add_delete(path, None)).is_err() {
            return Ok(false);
        }
        let commit = async {
            match both.commit().await {
                Ok(_) => Ok(true),
                // The next has no node any more, or this hold none: nothing was done.
                Err(MultiWriteError::OperationFailed { .. }) => Ok(false),
                Err(MultiWriteError::RequestFailed { source }) => Err(source),
            }
        };
        self.session.call(commit).await
    }

    /// A watch on the node; none once that is known to be gone, or the session to have ended.
    async fn watch(&self) -> Option<Told> {
        tokio::select! {
            biased;
            () = self.session.until_ended() => None,
            told = self.watch_in_session() => told,
        }
    }

    async fn watch_in_session(&self) -> Option<Told> {
        let (session, path) = (&self.session, self.path());
        loop {
            match session.call(session.client.get_and_watch_data(&path)).await {
                Ok((_, stat, watcher)) if stat.czxid == self.czxid => return Some(watching::told(watcher)),
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
        let registered = session.holds.register(validity);
        // A heartbeat may have been answered between the grant and now.
        validity.renewed(session.proved(validity.now()));
        // What is rare is boxed: many holds are kept, and nearly all of them wait for their watch.
        while let Some(mut told) = Box::pin(self.watch()).await {
            // Told or ended: what is there now is asked in either case.
            poll_fn(|cx| watching::poll_in(&registered, session, &mut told, cx)).await;
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
        let path = self.path();
        let stat = session.client.check_stat(&path);
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
        let was_ours = self.free().await?;
        if self.claim.is_unanswered() {
            self.engine.voids.insert(self.claim.id());
            let queue = self.session.keys.queue(self.claim.name());
            self.session.purge(&queue, self.claim.id()).await?;
        }
        if was_ours { Ok(()) } else { Err(lost()) }
    }

    /// `path`: the node; `czxid`: the transaction that made it.
    fn evidence(&self) -> Evidence {
        Evidence::none().with("path", self.path()).with("czxid", self.czxid.to_string())
    }
}
