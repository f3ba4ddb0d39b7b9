#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says what it expects by panicking")]
//! A deployment that gives less than it did: found by probes, told as the client was set up to.

use async_trait::async_trait;
use fencelock_core::memory::MemoryLock;
use fencelock_core::{
    Admin, Attempt, Capability, Claim, ClientBuilder, DistributedLock, ErrorKind, Grant, Guarantees, HolderInfo, Level,
    LockClient, LockName, LossReason, OnDegraded, Requirements, Result,
};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// An engine whose deployment can be changed; probes find it, asking does not.
#[derive(Debug)]
struct Changing {
    locks: MemoryLock,
    real: Mutex<Guarantees>,
    known: Mutex<Arc<Guarantees>>,
    probes: AtomicUsize,
    silent: AtomicBool,
    panics: AtomicBool,
}

fn fifo() -> Guarantees {
    (*MemoryLock::new().guarantees()).clone()
}

fn without_fifo() -> Guarantees {
    Guarantees::of("memory", "another process", fifo().scope(), fifo().liveness())
}

impl Changing {
    fn new() -> Arc<Self> {
        let (real, known) = (Mutex::new(fifo()), Mutex::new(Arc::new(fifo())));
        let (probes, silent, panics) = (AtomicUsize::new(0), AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { locks: MemoryLock::new(), real, known, probes, silent, panics })
    }

    fn becomes(&self, found: Guarantees) {
        *self.real.lock().unwrap() = found;
    }

    /// As an engine does when it has reconnected.
    fn finds_out(&self) {
        *self.known.lock().unwrap() = Arc::new(self.real.lock().unwrap().clone());
    }
}

#[async_trait]
impl DistributedLock for Changing {
    fn guarantees(&self) -> Arc<Guarantees> {
        Arc::clone(&self.known.lock().unwrap())
    }
    async fn probe(&self) -> Result<Arc<Guarantees>> {
        self.probes.fetch_add(1, Ordering::SeqCst);
        assert!(!self.panics.load(Ordering::SeqCst), "a fault in an engine");
        if self.silent.load(Ordering::SeqCst) {
            return Err(fencelock_core::Error::new(ErrorKind::Unavailable, "no answer"));
        }
        self.finds_out();
        Ok(self.guarantees())
    }
    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt> {
        self.locks.try_acquire(claim).await
    }
    async fn acquire(&self, claim: &Claim) -> Result<Grant> {
        self.locks.acquire(claim).await
    }
    async fn abandon(&self, claim: &Claim) -> Result<()> {
        self.locks.abandon(claim).await
    }
    async fn inspect(&self, name: &LockName) -> Result<Option<HolderInfo>> {
        self.locks.inspect(name).await
    }
    fn admin(&self) -> Option<&dyn Admin> {
        self.locks.admin()
    }
}

fn client(engine: &Arc<Changing>) -> ClientBuilder {
    let engine: Arc<dyn DistributedLock> = Arc::clone(engine) as _;
    let wanted = Requirements::default().with_level(Level::Advisory).with_capability(Capability::Fifo);
    LockClient::builder(engine).requirements(wanted)
}

const SOON: Duration = Duration::from_secs(5);

#[tokio::test(start_paused = true)]
async fn what_is_required_is_checked_at_once() {
    let engine = Changing::new();
    let more = Requirements::default().with_level(Level::Fenced);
    let refused = client(&engine).requirements(more).build().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused);
    let often = client(&engine).reprobe(Duration::from_millis(999)).build().unwrap_err();
    assert_eq!(often.kind(), ErrorKind::InvalidConfig);
}

#[tokio::test(start_paused = true)]
async fn a_warning_changes_nothing() {
    let engine = Changing::new();
    let client = client(&engine).build().unwrap();
    let held = client.acquire("one").await.unwrap();
    engine.becomes(without_fifo());
    client.probe().await.unwrap();
    assert!(!client.guarantees().has(Capability::Fifo), "what is told follows");
    let other = client.acquire("two").await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(held.is_held() && other.is_held());
    held.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn refusing_ends_holds_waits_and_acquires_until_it_is_mended() {
    let engine = Changing::new();
    let client = client(&engine).on_degraded(OnDegraded::Refuse).build().unwrap();
    let held = client.acquire("one").await.unwrap();
    let waiting = tokio::spawn(client.named("one").wait_forever().acquire());
    tokio::time::sleep(Duration::from_millis(10)).await;

    engine.becomes(without_fifo());
    client.probe().await.unwrap();
    assert!(!held.is_held(), "a probe tells at once");
    assert_eq!(held.lost().await, LossReason::Degraded);
    assert_eq!(held.release().await.unwrap_err().kind(), ErrorKind::Lost);
    let refused = client.try_acquire("two").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert!(refused.message().contains("`fifo` was required"), "{refused}");
    let waited = tokio::time::timeout(SOON * 2, waiting).await.unwrap().unwrap();
    assert_eq!(waited.unwrap_err().kind(), ErrorKind::Refused);
    assert_eq!((client.held(), client.inspect("two").await.unwrap()), (0, None));

    engine.becomes(fifo());
    client.probe().await.unwrap();
    client.acquire("two").await.unwrap().release().await.unwrap();
}

/// Each way to a lock is refused, on an engine that grants before anything else can be looked at too.
#[tokio::test(start_paused = true)]
async fn no_way_leads_around_a_refusal() {
    let engine = Changing::new();
    let client = client(&engine).on_degraded(OnDegraded::Refuse).build().unwrap();
    let scope = client.reentrant("job");
    engine.becomes(without_fifo());
    client.probe().await.unwrap();
    let refusals = [
        client.try_acquire("one").await.map(drop),
        client.acquire("one").await.map(drop),
        scope.named("two").try_acquire().await.map(drop),
        scope.named("two").acquire().await.map(drop),
        client.all(["three", "four"]).try_acquire().await.map(drop),
        client.all(["three", "four"]).acquire().await.map(drop),
    ];
    for (at, refused) in refusals.into_iter().enumerate() {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Refused, "{at}");
    }
    client.close().await;
    for name in ["one", "two", "three", "four"] {
        assert_eq!(engine.locks.inspect(&LockName::new(name).unwrap()).await.unwrap(), None, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_reconnect_found_is_told_to_holds() {
    let engine = Changing::new();
    let client = client(&engine).on_degraded(OnDegraded::Refuse).build().unwrap();
    let held = client.acquire("one").await.unwrap();
    engine.becomes(without_fifo());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(held.is_held(), "nobody has found out");
    engine.finds_out();
    let reason = tokio::time::timeout(Duration::from_millis(300), held.lost()).await.unwrap();
    assert_eq!(reason, LossReason::Degraded);
}

#[tokio::test(start_paused = true)]
async fn probes_come_as_often_as_asked_and_end_with_the_client() {
    let engine = Changing::new();
    let client = client(&engine).on_degraded(OnDegraded::Refuse).reprobe(Duration::from_secs(60)).build().unwrap();
    engine.becomes(without_fifo());
    engine.silent.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(90)).await;
    assert_eq!(engine.probes.load(Ordering::SeqCst), 1);
    client.acquire("one").await.unwrap().release().await.unwrap();
    engine.silent.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(client.acquire("one").await.unwrap_err().kind(), ErrorKind::Refused);
    drop(client);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(engine.probes.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_panics_is_not_the_last() {
    let engine = Changing::new();
    let client = client(&engine).on_degraded(OnDegraded::Refuse).reprobe(Duration::from_secs(60)).build().unwrap();
    engine.panics.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(150)).await;
    assert_eq!(engine.probes.load(Ordering::SeqCst), 2);
    client.acquire("one").await.unwrap().release().await.unwrap();
    engine.panics.store(false, Ordering::SeqCst);
    engine.becomes(without_fifo());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(client.acquire("one").await.unwrap_err().kind(), ErrorKind::Refused);
}
