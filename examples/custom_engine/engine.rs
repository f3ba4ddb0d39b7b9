//! The engine: all that it takes to lock on a service of one's own.

use crate::board::Board;
use async_trait::async_trait;
use fencelock::*;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::{sync::watch, time::timeout};

/// One client's way to the board, which may be cut.
#[derive(Clone, Debug)]
pub(crate) struct BoardLock {
    pub(crate) board: Arc<Mutex<Board>>,
    pub(crate) reached: watch::Receiver<bool>,
    pub(crate) request_timeout: Duration,
    pub(crate) polling: Polling,
}

impl BoardLock {
    /// One request. That no answer came is neither yes nor no.
    async fn ask<T>(&self, step: impl FnOnce(&mut Board) -> T) -> Result<T> {
        match timeout(self.request_timeout, self.reached.clone().wait_for(|reached| *reached)).await {
            Ok(Ok(_)) => Ok(step(&mut self.board.lock().unwrap_or_else(PoisonError::into_inner))),
            _ => Err(Error::new(ErrorKind::Unavailable, "no answer in time")),
        }
    }
}

#[async_trait]
impl DistributedLock for BoardLock {
    fn guarantees(&self) -> Arc<Guarantees> {
        let gone =
            Rule::new("board.memory", Level::Leased).refused("it is gone with its process", "use another engine");
        Arc::new(Guarantees::of("board", "one process", Scope::Process, Liveness::Lease).with_rule(gone))
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt> {
        let (request, sent_at) = (claim.request(), claim.now()); // before it is sent
        let answer = self.ask(|board| board.acquire(claim)).await?;
        request.answered();
        let lease = |token| {
            let held = Held(self.clone(), claim.clone(), self.polling.hold(claim.name()));
            Attempt::Granted(Grant::new(claim, held, sent_at, token))
        };
        Ok(answer.map_or_else(|contended| contended, lease))
    }

    async fn acquire(&self, claim: &Claim) -> Result<Grant> {
        self.polling.acquire(self, None, claim).await
    }

    async fn abandon(&self, claim: &Claim) -> Result<()> {
        self.ask(|board| board.end(claim)).await.map(drop)
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<HolderInfo>> {
        let held = self.ask(|board| board.list(name.as_str())).await?;
        Ok(held.into_iter().find(|(held, _)| held == name).map(|(_, holder)| holder))
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }
}

#[async_trait]
impl Admin for BoardLock {
    async fn list(&self, prefix: &str) -> Result<Vec<(LockName, HolderInfo)>> {
        let mut held = self.ask(|board| board.list(prefix)).await?;
        held.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(held)
    }

    async fn force_release(&self, name: &LockName) -> Result<bool> {
        self.ask(|board| board.force(name)).await
    }
}

/// A hold. Its last part wakes this client's waiters when it is dropped.
struct Held(BoardLock, Claim, #[allow(dead_code)] LocalHold);

#[async_trait]
impl Renew for Held {
    async fn renew(&self, server_ttl: Duration) -> Result<Renewal> {
        self.0.ask(|board| board.renew(&self.1, server_ttl)).await
    }
}

#[async_trait]
impl Lease for Held {
    async fn keep_alive(&self, validity: &Validity) -> LossReason {
        keep_alive_by_renewing(self, validity).await
    }

    async fn extend(&self, ttl: Duration, validity: &Validity) -> Result<()> {
        extend_by_renewing(self, ttl, validity).await
    }

    async fn release(self: Box<Self>) -> Result<()> {
        let lost = Error::new(ErrorKind::Lost, "the lock was no longer ours");
        self.0.ask(|board| board.end(&self.1)).await?.then_some(()).ok_or(lost)
    }

    fn evidence(&self) -> Evidence {
        Evidence::none()
    }
}
