//! An engine of one's own: the memory engine under another name, with guarantees to choose.

use async_trait::async_trait;
use fencelock::memory::MemoryLock;
use fencelock::{
    Admin, Assumption, Attempt, Capability, Claim, DistributedLock, Grant, Guarantees, HolderInfo, Level, Liveness,
    LockName, Registry, Result, Rule, Scope, Target,
};
use std::sync::Arc;

#[derive(Debug)]
struct Posing {
    inner: MemoryLock,
    guarantees: Arc<Guarantees>,
}

/// One rule that is proved, one that can be attested for `Fenced`, one that keeps `Replicated` away.
fn guarantees() -> Guarantees {
    Guarantees::of("posing", "one pretended node", Scope::Network, Liveness::Lease)
        .with_rule(Rule::new("posing.clock", Level::Leased).proved("it was seen"))
        .with_rule(Rule::new("posing.disk", Level::Fenced).unknown("the server hides it").attestable())
        .with_rule(Rule::new("posing.nodes", Level::Replicated).refused("one node", "start three"))
        .with_capability(Capability::Fifo)
        .with_assumption(Assumption::ServerClock)
}

pub(crate) fn registry() -> Registry {
    let inner = MemoryLock::new();
    Registry::builtin().with("posing", move |target: Target| {
        let inner = inner.clone();
        async move {
            let mut settings = target.url.settings;
            settings.number::<u32>("pool")?;
            settings.finish()?;
            let guarantees = Arc::new(guarantees().attest(target.attest)?);
            Ok(Arc::new(Posing { inner, guarantees }) as Arc<dyn DistributedLock>)
        }
    })
}

#[async_trait]
impl DistributedLock for Posing {
    fn guarantees(&self) -> Arc<Guarantees> {
        Arc::clone(&self.guarantees)
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt> {
        self.inner.try_acquire(claim).await
    }

    async fn acquire(&self, claim: &Claim) -> Result<Grant> {
        self.inner.acquire(claim).await
    }

    async fn abandon(&self, claim: &Claim) -> Result<()> {
        self.inner.abandon(claim).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<HolderInfo>> {
        self.inner.inspect(name).await
    }

    fn admin(&self) -> Option<&dyn Admin> {
        self.inner.admin()
    }
}
