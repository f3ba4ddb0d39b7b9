//! One client's engine on a server in memory.

use super::faults::Operation;
use super::lease::MemoryLease;
use super::server::{Failure, MemoryServer};
use super::table::{Answer, Table};
use crate::{
    Admin, Attempt, Capability, Claim, DistributedLock, Error, ErrorKind, FencingToken, Grant, Guarantees, HolderInfo,
    Level, Liveness, LockName, Moment, Obstacle, Result, Rule, Scope,
};
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// How often a waiter is heard of at the least, so that it keeps its place.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How long a waiter rests when the server is away.
const REST: Duration = Duration::from_millis(50);

/// The engine in memory. Cloning gives the same client's engine.
#[derive(Clone, Debug)]
pub struct MemoryLock {
    server: MemoryServer,
    limit: Duration,
    guarantees: Arc<Guarantees>,
}

impl MemoryLock {
    /// An engine on a server of its own.
    #[must_use]
    pub fn new() -> Self {
        Self::on(&MemoryServer::new())
    }

    /// An engine on `server`, which it shares with others. A request may take 1 s.
    #[must_use]
    pub fn on(server: &MemoryServer) -> Self {
        let rule = Rule::new("memory.one_process", Level::Leased).refused(
            "the locks are in one process and gone with it",
            "use `sqlite:PATH` for one host, or a lock service",
        );
        let guarantees = Guarantees::of("memory", "in this process", Scope::Process, Liveness::Lease)
            .with_rule(rule)
            .with_capability(Capability::Fifo)
            .with_capability(Capability::NotifiedWaiting)
            .with_capability(Capability::Cohort);
        Self { server: server.clone(), limit: Duration::from_secs(1), guarantees: Arc::new(guarantees) }
    }

    /// How long one request may take.
    #[must_use]
    pub fn with_request_limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// The server that this engine is on.
    #[must_use]
    pub fn server(&self) -> &MemoryServer {
        &self.server
    }

    pub(super) async fn call<T: Send + 'static>(
        &self,
        operation: Operation,
        request: impl Fn(&mut Table, Moment) -> T + Send + 'static,
    ) -> std::result::Result<T, Failure> {
        self.server.call(operation, self.limit, request).await
    }

    async fn ask(&self, claim: &Claim, wake: Option<Arc<Notify>>) -> Result<Attempt> {
        let sent_at = claim.now();
        let under_way = claim.request();
        let asked = claim.clone();
        let answer = self.call(Operation::Acquire, move |table, now| table.acquire(&asked, wake.as_ref(), now)).await;
        let answer = match answer {
            Ok(answer) => {
                under_way.answered();
                answer
            }
            Err(failure) => {
                if matches!(failure, Failure::Refused) {
                    under_way.answered();
                }
                return Err(failure.into());
            }
        };
        match answer {
            Answer::Granted(token) => {
                let lease = MemoryLease::new(self.clone(), claim.clone());
                let grant = Grant::new(claim, lease, sent_at, token).with_reserved(claim.reserve());
                Ok(Attempt::Granted(grant))
            }
            Answer::Contended { expires_in, holder } => Ok(Attempt::contended(Some(expires_in), holder)),
            Answer::Dead => Err(Error::new(ErrorKind::Lost, "this claim was abandoned, released or has expired")),
        }
    }
}

impl Default for MemoryLock {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl DistributedLock for MemoryLock {
    fn guarantees(&self) -> Arc<Guarantees> {
        Arc::clone(&self.guarantees)
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt> {
        self.ask(claim, None).await
    }

    async fn acquire(&self, claim: &Claim) -> Result<Grant> {
        let wake = Arc::new(Notify::new());
        loop {
            let rest = match self.ask(claim, Some(Arc::clone(&wake))).await {
                Ok(Attempt::Granted(grant)) => return Ok(grant),
                Ok(Attempt::Contended { retry_after, holder }) => {
                    claim.met(Obstacle::Held(holder));
                    retry_after.map_or(HEARTBEAT, |expiry| expiry.min(HEARTBEAT))
                }
                Err(e) if e.kind() == ErrorKind::Unavailable => {
                    claim.met(Obstacle::Unreachable(e.to_string().into()));
                    REST
                }
                Err(e) => return Err(e),
            };
            // Granted by the server meanwhile or not, the next round asks again: the
            // same id gets the same token, and an expiry counted from a fresh sending.
            let _ = tokio::time::timeout(rest, wake.notified()).await;
        }
    }

    async fn abandon(&self, claim: &Claim) -> Result<()> {
        if !claim.was_sent() {
            return Ok(());
        }
        let undone = claim.clone();
        Ok(self.call(Operation::Abandon, move |table, now| table.abandon(&undone, now)).await?)
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<HolderInfo>> {
        let name = name.clone();
        Ok(self.call(Operation::Inspect, move |table, now| table.inspect(&name, now)).await?)
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }
}

#[async_trait]
impl Admin for MemoryLock {
    async fn list(&self, prefix: &str) -> Result<Vec<(LockName, HolderInfo)>> {
        let prefix = prefix.to_owned();
        Ok(self.call(Operation::Inspect, move |table, now| table.list(&prefix, now)).await?)
    }

    async fn force_release(&self, name: &LockName) -> Result<bool> {
        let name = name.clone();
        Ok(self.call(Operation::Inspect, move |table, now| table.force(&name, None, now)).await?)
    }

    async fn force_release_if(&self, name: &LockName, token: FencingToken) -> Result<bool> {
        let name = name.clone();
        Ok(self.call(Operation::Inspect, move |table, now| table.force(&name, Some(token), now)).await?)
    }
}
