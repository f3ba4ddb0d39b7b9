//! An engine of one's own: it joins by its scheme, and is used like any other.
//!
//! What stands under "the engine" is all that it takes, in fewer than 120 lines. "The
//! service" is not counted, as it stands for what the engine talks to: what a database or
//! a server with a lock of its own brings along, or else has to be written too (it is as
//! long again). It lives in this process only so that the example needs no server.
//!
//! `tests/custom_engine.rs` runs the contract suite on it.
//!
//! `cargo run --example custom_engine`

#![allow(clippy::print_stdout, reason = "it is for people to read")]

use async_trait::async_trait;
use fencelock::*;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::{sync::watch, time::timeout};

#[tokio::main]
async fn main() -> Result<()> {
    let board = Arc::default();
    let registry = Registry::builtin().with("board", move |target| std::future::ready(connect(&board, target)));
    let client = || builder("board:?request_timeout=500ms").registry(registry.clone()).connect();
    let (one, two) = (client().await?, client().await?);

    let guard = one.acquire("orders/1001").await?;
    let shut_out = two.try_acquire("orders/1001").await?.is_none();
    println!("one holds it with token {}, two is shut out: {shut_out}", guard.token());
    guard.release().await?;
    let guard = two.acquire("orders/1001").await?;
    println!("two holds it with token {}", guard.token());
    guard.release().await?;

    let misspelt = builder("board:?request_timout=1s").registry(registry).connect().await;
    println!("a misspelt setting: {}", misspelt.err().map_or_else(String::new, |e| e.to_string()));
    Ok(())
}

// ---- the engine: all that it takes to lock on a service of one's own ----

/// What `board:?request_timeout=500ms` leads to.
fn connect(board: &Arc<Mutex<Board>>, target: Target) -> Result<Arc<dyn DistributedLock>> {
    let mut settings = target.url.settings;
    let request_timeout = settings.duration("request_timeout")?.unwrap_or(Duration::from_secs(1));
    settings.finish()?; // refuses what it does not know
    let (board, reached) = (Arc::clone(board), watch::channel(true).1);
    Ok(Arc::new(BoardLock { board, reached, request_timeout, polling: Polling::new() }))
}

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
        self.ask(|board| board.force(name, None)).await
    }

    async fn force_release_if(&self, name: &LockName, token: FencingToken) -> Result<bool> {
        self.ask(|board| board.force(name, Some(token))).await
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

// ---- the service, which is no part of the engine; each step is done as a whole ----

/// The id of a row that was taken away from its holder, which is no claim's.
const NOBODY: ClaimId = ClaimId::from_bytes([0; 16]);

#[derive(Debug)]
pub(crate) struct Row {
    id: ClaimId,
    info: HolderInfo,
    lock_delay: Duration,
    expires: Moment,
}

/// Who holds what, until when, on the service's own clock.
#[derive(Debug, Default)]
pub(crate) struct Board {
    clock: Clock,
    held: HashMap<LockName, Row>,
    /// Ids that are not to be granted, now or again, while a copy of a request may arrive.
    used: HashMap<ClaimId, Moment>,
    last: u64,
}

impl Board {
    fn find(&mut self, name: &LockName) -> Option<&mut Row> {
        self.held.get_mut(name).filter(|row| row.expires > self.clock.now())
    }

    /// Who holds what begins with `prefix`.
    pub(crate) fn list(&self, prefix: &str) -> Vec<(LockName, HolderInfo)> {
        let held = |(name, row): &(&LockName, &Row)| {
            row.id != NOBODY && row.expires > self.clock.now() && name.as_str().starts_with(prefix)
        };
        self.held.iter().filter(held).map(|(name, row)| (name.clone(), row.info.clone())).collect()
    }

    /// The token of the claim's hold, or why there is none.
    pub(crate) fn acquire(&mut self, claim: &Claim) -> Result<FencingToken, Attempt> {
        let (now, until) = (self.clock.now(), self.clock.now().plus(claim.server_ttl()));
        let used = self.used.contains_key(&claim.id());
        match self.find(claim.name()) {
            Some(row) if row.id == claim.id() => {
                row.expires = row.expires.max(until); // asked again: the same hold, whose time counts anew, never back
                return Ok(row.info.token);
            }
            Some(row) => {
                let holder = (row.id != NOBODY).then(|| Arc::clone(&row.info.holder));
                return Err(Attempt::contended(Some(row.expires.since(now)), holder));
            }
            None if used => return Err(Attempt::contended(None, None)),
            None => self.last += 1,
        }
        let token = FencingToken::new(self.last);
        let info = HolderInfo::new(Arc::clone(claim.holder()), token).with_note(claim.note().cloned());
        let row = Row { id: claim.id(), info, lock_delay: claim.lock_delay(), expires: until };
        self.held.insert(claim.name().clone(), row);
        self.retire(claim);
        Ok(token)
    }

    /// Counts the time of the claim's own hold anew; never makes one.
    pub(crate) fn renew(&mut self, claim: &Claim, server_ttl: Duration) -> Renewal {
        let until = self.clock.now().plus(server_ttl);
        match self.find(claim.name()) {
            Some(row) if row.id == claim.id() => {
                row.expires = row.expires.max(until);
                Renewal::Renewed
            }
            _ => Renewal::Refused,
        }
    }

    fn retire(&mut self, claim: &Claim) {
        let now = self.clock.now();
        self.used.retain(|_, until| *until > now);
        self.used.insert(claim.id(), now.plus(claim.server_ttl() + Duration::from_secs(60)));
    }

    /// Frees what the claim holds, never what another does.
    pub(crate) fn end(&mut self, claim: &Claim) -> bool {
        self.retire(claim);
        let own = self.find(claim.name()).is_some_and(|row| row.id == claim.id());
        own && self.held.remove(claim.name()).is_some()
    }

    /// Takes the lock from its holder, of this token if one is given, who has its lock delay to hear of it.
    pub(crate) fn force(&mut self, name: &LockName, token: Option<FencingToken>) -> bool {
        let now = self.clock.now();
        let meant = |row: &&mut Row| row.id != NOBODY && token.is_none_or(|token| row.info.token == token);
        let Some(row) = self.find(name).filter(meant) else { return false };
        row.id = NOBODY;
        row.expires = row.expires.min(now.plus(row.lock_delay));
        true
    }
}
