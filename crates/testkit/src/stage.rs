//! What a case works with.

use crate::failure::{Expect, Outcome, ensure};
use crate::harness::Bench;
use crate::{HolderProcess, HolderTerms};
use fencelock_core::{
    AcquireOptions, Attempt, Capability, Claim, DistributedLock, FencingToken, Grant, Guarantees, Liveness, LockClient,
    LockGuard, LockName, Result, Scope, Terms, Wait,
};
use std::fmt;
use std::future::Future;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a loaded machine may add to anything that should be quick. Only ever
/// used for upper bounds; what is about safety has no slack at all.
pub(crate) const SLACK: Duration = Duration::from_secs(5);

pub(crate) struct Stage {
    bench: Arc<dyn Bench>,
    case: &'static str,
    run: u64,
    promises: Arc<Guarantees>,
}

impl Stage {
    pub(crate) async fn set(bench: Arc<dyn Bench>, case: &'static str) -> Outcome<Self> {
        let engine = bench.connect().await.expect_that("the first connection")?;
        Ok(Self { bench, case, run: fastrand::u64(..), promises: engine.guarantees() })
    }

    /// The ttl that this engine's cases work with.
    pub(crate) fn ttl(&self) -> Duration {
        self.bench.ttl()
    }

    /// The ttl of a hold that is released in good time and is not to run out before, whatever a loaded machine makes of
    /// the case; in a session the service sets the time.
    pub(crate) fn long_ttl(&self) -> Duration {
        if self.is_session() { self.ttl() } else { self.ttl() * 10 }
    }

    /// A name that no other case and no other run uses.
    pub(crate) fn name(&self, what: &str) -> String {
        format!("{}:{:016x}:{what}", self.case, self.run)
    }

    pub(crate) async fn engine(&self) -> Outcome<Arc<dyn DistributedLock>> {
        self.bench.connect().await.expect_that("a new connection")
    }

    /// A client on a connection of its own.
    pub(crate) async fn client(&self) -> Outcome<LockClient> {
        self.client_called("testkit").await
    }

    pub(crate) async fn client_called(&self, holder: &str) -> Outcome<LockClient> {
        Ok(LockClient::builder(self.engine().await?).holder(holder).defaults(self.options()).build()?)
    }

    pub(crate) fn options(&self) -> AcquireOptions {
        let mut options = AcquireOptions::default();
        options.ttl = self.ttl();
        options.wait = Wait::AtMost(Duration::from_secs(40));
        options
    }

    pub(crate) fn claim(&self, name: &str) -> Outcome<Claim> {
        self.claim_for(name, self.ttl())
    }

    /// A claim whose hold, which nobody renews, lasts for the [long ttl](Self::long_ttl).
    pub(crate) fn long_claim(&self, name: &str) -> Outcome<Claim> {
        self.claim_for(name, self.long_ttl())
    }

    fn claim_for(&self, name: &str, ttl: Duration) -> Outcome<Claim> {
        Ok(Terms::new(LockName::new(name)?, ttl).with_holder("testkit").mint()?)
    }

    /// A holder in another process.
    pub(crate) fn holder(&self, name: &str) -> HolderTerms {
        HolderTerms::new(self.bench.address(), name, self.ttl())
    }

    pub(crate) async fn holding(&self, terms: &HolderTerms) -> Outcome<(HolderProcess, FencingToken)> {
        let mut process = HolderProcess::start(terms)?;
        let token = process.held().await?;
        Ok((process, token))
    }

    pub(crate) async fn interrupt(&self) -> Outcome {
        self.bench.interrupt().await.expect_that("interrupting the service")
    }

    /// The service answers again, and goes on to.
    pub(crate) async fn heal(&self) -> Outcome {
        self.heal_at_once().await?;
        self.bench.settle().await.expect_that("the healed service serves steadily")
    }

    /// The service answers again. Where it has several members, they may have to agree first.
    pub(crate) async fn heal_at_once(&self) -> Outcome {
        self.bench.heal().await.expect_that("healing the service")
    }

    pub(crate) async fn seize(&self, name: &str) -> Outcome {
        self.bench.seize(&LockName::new(name)?).await.expect_that("seizing the lock")
    }

    /// Says which promise chose which assertion.
    pub(crate) fn chose(&self, promise: impl fmt::Display, assertion: &str) {
        let (engine, case) = (self.promises.engine(), self.case);
        report(format_args!("{engine}: {case}: {promise}, so {assertion}"));
    }

    /// Whether the capability is promised, having said what is asserted for it.
    pub(crate) fn promises(&self, capability: Capability, if_so: &str, if_not: &str) -> bool {
        let has = self.promises.has(capability);
        let says = if has { "is promised" } else { "is not promised" };
        self.chose(format_args!("{capability} {says}"), if has { if_so } else { if_not });
        has
    }

    pub(crate) fn is_session(&self) -> bool {
        self.promises.liveness() == Liveness::Session
    }

    pub(crate) fn guarantees(&self) -> &Guarantees {
        &self.promises
    }

    /// Whether other processes are excluded. If not, what can be asserted of that is.
    pub(crate) async fn reaches_processes(&self) -> Outcome<bool> {
        let scope = self.promises.scope();
        let again = self.engine().await?.guarantees().scope();
        ensure!(again == scope, "one connection says that the scope is {scope}, another {again}");
        if scope == Scope::Process {
            self.chose("the scope is one process", "no other process takes part, and every connection says so");
            return Ok(false);
        }
        self.chose(format_args!("the scope is a {scope}"), "other processes take part");
        Ok(true)
    }
}

/// Says something of a case, in one write: cases run beside one another, and a line must not end within another's.
pub(crate) fn report(line: impl fmt::Display) {
    // A closed standard error must not fail a case.
    let _ = std::io::stderr().write_all(format!("  {line}\n").as_bytes());
}

/// What must be free: takes it, at once.
pub(crate) async fn take(client: &LockClient, name: &str) -> Outcome<LockGuard> {
    client.try_acquire(name).await?.expect_that(format_args!("{name} should be free at once, and is not"))
}

/// Takes and gives back what must be free at once.
pub(crate) async fn is_free(client: &LockClient, name: &str) -> Outcome {
    take(client, name).await?.release().await.expect_that("releasing what was just acquired")
}

/// What must be held by somebody else.
pub(crate) async fn is_taken(client: &LockClient, name: &str) -> Outcome {
    match client.try_acquire(name).await? {
        None => Ok(()),
        Some(second) => {
            let token = second.token();
            Err(crate::Failure::new(format!("{name} was granted to two at once; the second has token {token}")))
        }
    }
}

pub(crate) fn granted(attempt: Result<Attempt>) -> Outcome<Grant> {
    match attempt? {
        Attempt::Granted(grant) => Ok(grant),
        other => Err(crate::Failure::new(format!("should have been granted, and was {other:?}"))),
    }
}

pub(crate) fn contended(attempt: Result<Attempt>) -> Outcome {
    match attempt? {
        Attempt::Contended { .. } => Ok(()),
        other => Err(crate::Failure::new(format!("should have been contended, and was {other:?}"))),
    }
}

/// Waits until nothing of the client's is pending or held.
pub(crate) async fn drained(client: &LockClient) -> Outcome {
    until("the client has nothing pending and nothing held", SLACK * 2, || client.pending() == 0 && client.held() == 0)
        .await
}

/// Looks again and again, every few milliseconds, until the condition holds.
pub(crate) async fn until(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) -> Outcome {
    let started = Instant::now();
    while !holds() {
        ensure!(started.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}

/// Awaits, but no longer than the limit.
pub(crate) async fn within<T>(what: &str, limit: Duration, work: impl Future<Output = T>) -> Outcome<T> {
    tokio::time::timeout(limit, work).await.map_err(|_| crate::Failure::new(format!("not within {limit:?}: {what}")))
}
