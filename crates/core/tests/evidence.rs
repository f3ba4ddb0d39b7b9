//! Evidence that is asked for in the instant of a loss.

#![allow(missing_docs, reason = "a test")]

use async_trait::async_trait;
use fencelock_core::memory::MemoryLock;
use fencelock_core::{
    Admin, Attempt, Claim, DistributedLock, Evidence, FencingToken, Grant, Guarantees, HolderInfo, Lease, LockClient,
    LockName, LossReason, Result, Validity,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Counts the leases that are still there.
#[derive(Debug)]
struct Counting(MemoryLock, Arc<AtomicUsize>);

/// What asking a lease for its evidence takes.
const ASKING: Duration = Duration::from_millis(40);

struct Counted(Arc<AtomicUsize>);

impl Counting {
    fn grant(&self, claim: &Claim) -> Grant {
        self.1.fetch_add(1, Ordering::SeqCst);
        Grant::new(claim, Counted(Arc::clone(&self.1)), claim.now(), FencingToken::new(1))
    }
}

#[async_trait]
impl DistributedLock for Counting {
    fn guarantees(&self) -> Arc<Guarantees> {
        self.0.guarantees()
    }
    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt> {
        Ok(Attempt::Granted(self.grant(claim)))
    }
    async fn acquire(&self, claim: &Claim) -> Result<Grant> {
        Ok(self.grant(claim))
    }
    async fn abandon(&self, _: &Claim) -> Result<()> {
        Ok(())
    }
    async fn inspect(&self, _: &LockName) -> Result<Option<HolderInfo>> {
        Ok(None)
    }
    fn admin(&self) -> Option<&dyn Admin> {
        None
    }
}

#[async_trait]
impl Lease for Counted {
    async fn keep_alive(&self, _: &Validity) -> LossReason {
        LossReason::SessionEnded
    }
    async fn extend(&self, _: Duration, _: &Validity) -> Result<()> {
        Ok(())
    }
    async fn release(self: Box<Self>) -> Result<()> {
        Ok(())
    }
    fn evidence(&self) -> Evidence {
        std::thread::sleep(ASKING);
        Evidence::none()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_lost_lease_is_let_go_of_by_whoever_asks_it_last() {
    let leases = Arc::new(AtomicUsize::new(0));
    let mut guards = Vec::new();
    // A client each, so that each looks at its hold by itself.
    for _ in 0..40 {
        let client = LockClient::new(Arc::new(Counting(MemoryLock::new(), Arc::clone(&leases)))).unwrap();
        let lock = client.named("x").ttl(Duration::from_millis(300)).auto_renew(false);
        guards.push((lock.acquire().await.unwrap(), client));
    }
    let asking: Vec<_> = guards
        .into_iter()
        .map(|(guard, client)| {
            tokio::task::spawn_blocking(move || {
                std::thread::sleep(guard.remaining().saturating_sub(ASKING / 2));
                let _ = guard.evidence();
                (guard, client)
            })
        })
        .collect();
    let mut guards = Vec::new();
    for asked in asking {
        guards.push(asked.await.unwrap());
    }
    assert!(guards.iter().all(|(guard, _)| !guard.is_held()));
    let started = Instant::now();
    while leases.load(Ordering::SeqCst) > 0 && started.elapsed() < Duration::from_secs(5) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(leases.load(Ordering::SeqCst), 0, "leases of lost holds, whose guards are there, are kept");
}
