//! Waiting by polling: a local queue, hints, and what the waiters behind the head are told.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::unused_async,
    reason = "a test says what it expects by panicking"
)]

mod common;

use async_trait::async_trait;
use common::{drained, ms};
use fencelock_core::memory::{MemoryLock, MemoryServer};
use fencelock_core::{
    Admin, Attempt, Claim, DistributedLock, ErrorKind, Evidence, FakeClock, Grant, Guarantees, Hint, Hints, HolderInfo,
    Lease, LocalHold, LockClient, LockName, LossReason, Polling, Result, Validity,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;

/// The engine in memory, reduced to what an engine can do that only tries.
#[derive(Debug)]
struct Polled {
    engine: MemoryLock,
    polling: Polling,
    hints: Option<Bell>,
    tries: Arc<AtomicUsize>,
}

struct PolledLease(Box<dyn Lease>, #[allow(dead_code, reason = "dropped with the lease")] LocalHold);

#[async_trait]
impl DistributedLock for Polled {
    fn guarantees(&self) -> Arc<Guarantees> {
        self.engine.guarantees()
    }
    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt> {
        self.tries.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(ms(1)).await;
        Ok(match self.engine.try_acquire(claim).await? {
            Attempt::Granted(Grant { claim, lease, sent_at, token, .. }) => {
                let lease = PolledLease(lease, self.polling.hold(claim.name()));
                Attempt::Granted(Grant::new(&claim, lease, sent_at, token))
            }
            contended => contended,
        })
    }
    async fn acquire(&self, claim: &Claim) -> Result<Grant> {
        self.polling.acquire(self, self.hints.as_ref().map(|bell| bell as &dyn Hints), claim).await
    }
    async fn abandon(&self, claim: &Claim) -> Result<()> {
        self.engine.abandon(claim).await
    }
    async fn inspect(&self, name: &LockName) -> Result<Option<HolderInfo>> {
        self.engine.inspect(name).await
    }
    fn admin(&self) -> Option<&dyn Admin> {
        None
    }
}

#[async_trait]
impl Lease for PolledLease {
    async fn keep_alive(&self, validity: &Validity) -> LossReason {
        self.0.keep_alive(validity).await
    }
    async fn extend(&self, ttl: Duration, validity: &Validity) -> Result<()> {
        self.0.extend(ttl, validity).await
    }
    async fn release(self: Box<Self>) -> Result<()> {
        let Self(lease, _hold) = *self;
        lease.release().await
    }
    fn evidence(&self) -> Evidence {
        self.0.evidence()
    }
}

/// Rings for every name at once.
#[derive(Clone, Debug, Default)]
struct Bell(Arc<Notify>);

#[async_trait]
impl Hints for Bell {
    async fn listen(&self, _: &LockName) -> Result<Box<dyn Hint>> {
        Ok(Box::new(self.clone()))
    }
}

#[async_trait]
impl Hint for Bell {
    async fn heard(&mut self) {
        self.0.notified().await;
    }
}

struct World {
    clock: FakeClock,
    server: MemoryServer,
    bell: Bell,
}

impl World {
    fn new() -> Self {
        let clock = FakeClock::new();
        Self { server: MemoryServer::with_clock(clock.clock()), clock, bell: Bell::default() }
    }

    fn client(&self, hints: bool) -> (LockClient, Arc<AtomicUsize>) {
        let tries = Arc::new(AtomicUsize::new(0));
        let engine = Polled {
            engine: MemoryLock::on(&self.server).with_request_limit(ms(200)),
            polling: Polling::new(),
            hints: hints.then(|| self.bell.clone()),
            tries: Arc::clone(&tries),
        };
        (LockClient::builder(Arc::new(engine)).clock(self.clock.clock()).build().unwrap(), tries)
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_head_asks_and_the_order_is_kept() {
    let w = World::new();
    let (client, tries) = w.client(false);
    let held = client.acquire("x").await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let tasks: Vec<_> = (0..50)
        .map(|n| {
            let (waiting, order) = (client.acquire("x"), Arc::clone(&order));
            tokio::spawn(async move {
                let guard = waiting.await.unwrap();
                order.lock().unwrap().push(n);
                guard.release().await.unwrap();
            })
        })
        .collect();
    tokio::time::sleep(ms(3_000)).await;
    let asked = tries.load(Ordering::SeqCst);
    assert!(asked <= 2, "while this client holds the lock its own waiters need not ask: {asked}");
    let start = tokio::time::Instant::now();
    held.release().await.unwrap();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..50).collect::<Vec<_>>());
    assert!(start.elapsed() < ms(500), "handed over at once: {:?}", start.elapsed());
    assert!(tries.load(Ordering::SeqCst) <= asked + 55, "one try a handover: {}", tries.load(Ordering::SeqCst));
}

#[tokio::test(start_paused = true)]
async fn without_hints_it_backs_off_and_with_hints_it_is_told() {
    let w = World::new();
    let (holder, _) = w.client(false);
    for hints in [false, true] {
        let held = holder.acquire("x").await.unwrap();
        let (client, tries) = w.client(hints);
        let waiting = tokio::spawn(client.acquire("x"));
        tokio::time::sleep(ms(20_000)).await;
        let asked = tries.load(Ordering::SeqCst);
        if hints {
            assert!(asked <= 6, "a safety check every 5 s: {asked}");
        } else {
            assert!((40..=100).contains(&asked), "every 250 to 500 ms: {asked}");
        }
        held.release().await.unwrap();
        w.bell.0.notify_waiters();
        let start = tokio::time::Instant::now();
        waiting.await.unwrap().unwrap().release().await.unwrap();
        assert!(start.elapsed() <= if hints { ms(5) } else { ms(510) }, "{:?}", start.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn those_behind_the_head_learn_what_it_met() {
    let w = World::new();
    let (client, _) = w.client(false);
    w.server.set_down(true);
    let waits: Vec<_> = (0..3).map(|_| tokio::spawn(client.named("x").wait_at_most(ms(2_000)).acquire())).collect();
    for waiting in waits {
        assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
    }
    w.server.set_down(false);
    let (other, _) = w.client(false);
    let held = other.acquire("x").await.unwrap();
    let waits: Vec<_> = (0..3).map(|_| tokio::spawn(client.named("x").wait_at_most(ms(2_000)).acquire())).collect();
    for waiting in waits {
        assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::Timeout);
    }
    drained(&client).await;
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_not_polled_holds_nobody_up() {
    let w = World::new();
    let (holder, _) = w.client(false);
    let (client, _) = w.client(false);
    let held = holder.acquire("x").await.unwrap();
    let mut neglected = Box::pin(client.named("x").ttl(ms(1_000)).wait_at_most(ms(2_000)).acquire());
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(neglected.as_mut().poll(&mut cx).is_pending());
    held.release().await.unwrap();
    let guard = client.named("x").wait_at_most(ms(20_000)).acquire().await.unwrap();
    guard.release().await.unwrap();
    // Polled again after all, it finds its time used up or waits anew; it believes in nothing old.
    match neglected.await {
        Ok(late) => assert!(late.is_held()),
        Err(e) => assert!(e.is_retryable(), "{e}"),
    }
}

/// An ear that has gone deaf in the wrong way, and a server that says `try at once`.
#[derive(Debug)]
struct Noise(Arc<AtomicUsize>);

#[async_trait]
impl Hints for Noise {
    async fn listen(&self, _: &LockName) -> Result<Box<dyn Hint>> {
        Ok(Box::new(Self(Arc::clone(&self.0))))
    }
}

#[async_trait]
impl Hint for Noise {
    async fn heard(&mut self) {}
}

#[async_trait]
impl fencelock_core::Tries for Noise {
    async fn try_once(&self, claim: &Claim) -> Result<Attempt> {
        self.0.fetch_add(1, Ordering::SeqCst);
        // As an engine that has to undo what it tried: the id is dead, and the next try has another.
        claim.next_attempt_undone()?;
        Ok(Attempt::contended(Some(Duration::ZERO), None))
    }
}

#[tokio::test(start_paused = true)]
async fn however_often_it_is_woken_it_does_not_spin() {
    let tries = Arc::new(AtomicUsize::new(0));
    let noise = Noise(Arc::clone(&tries));
    let claim = fencelock_core::Terms::new(LockName::new("x").unwrap(), ms(1_000)).mint().unwrap();
    let polling = Polling::new();
    let waiting = polling.acquire(&noise, Some(&noise), &claim);
    assert!(tokio::time::timeout(ms(10_000), waiting).await.is_err());
    let tries = tries.load(Ordering::SeqCst);
    assert!((100..500).contains(&tries), "{tries} tries in 10 s");
    assert_ne!(claim.latest().id(), claim.id());
    assert_eq!(polling.names(), 0);
}

/// Makes several attempts under one call, as a quorum engine does, and then fails.
#[derive(Debug)]
struct Chains(MemoryLock, ErrorKind);

#[async_trait]
impl DistributedLock for Chains {
    fn guarantees(&self) -> Arc<Guarantees> {
        self.0.guarantees()
    }
    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt> {
        let _ = self.0.try_acquire(claim).await?;
        let second = claim.next_attempt()?;
        let _ = self.0.try_acquire(&second).await;
        let third = second.next_attempt()?;
        // Both before it are on their way to be undone; this one is left behind.
        while let Ok(Attempt::Contended { .. }) = self.0.try_acquire(&third).await {
            tokio::time::sleep(ms(1)).await;
        }
        Err(fencelock_core::Error::new(self.1, "the majority went away"))
    }
    async fn acquire(&self, claim: &Claim) -> Result<Grant> {
        self.try_acquire(claim).await?;
        Err(fencelock_core::Error::new(self.1, "not reached"))
    }
    async fn abandon(&self, claim: &Claim) -> Result<()> {
        self.0.abandon(claim).await
    }
    async fn inspect(&self, name: &LockName) -> Result<Option<HolderInfo>> {
        self.0.inspect(name).await
    }
    fn admin(&self) -> Option<&dyn Admin> {
        None
    }
}

#[tokio::test(start_paused = true)]
async fn every_attempt_of_a_call_that_fails_is_undone() {
    for kind in [ErrorKind::Unavailable, ErrorKind::Denied] {
        let w = World::new();
        let engine = Chains(MemoryLock::on(&w.server), kind);
        let client = LockClient::builder(Arc::new(engine)).clock(w.clock.clock()).build().unwrap();
        assert_eq!(client.try_acquire("x").await.unwrap_err().kind(), kind);
        drained(&client).await;
        assert_eq!(w.server.entries(), 0);
        assert_eq!(client.acquire("x").await.unwrap_err().kind(), kind);
        drained(&client).await;
        assert_eq!(w.server.entries(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_free_lock_is_no_obstacle() {
    let engine = Polled { engine: MemoryLock::new(), polling: Polling::new(), hints: None, tries: Arc::default() };
    let claim = fencelock_core::Terms::new(LockName::new("x").unwrap(), ms(1_000)).mint().unwrap();
    let grant = engine.acquire(&claim).await.unwrap();
    assert_eq!(claim.obstacle(), fencelock_core::Obstacle::Silence);
    drop(grant);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_head_lets_the_next_one_ask() {
    let w = World::new();
    let (holder, _) = w.client(false);
    let (client, _) = w.client(false);
    let held = holder.acquire("x").await.unwrap();
    let head = tokio::spawn(client.acquire("x"));
    tokio::time::sleep(ms(5)).await;
    let next = tokio::spawn(client.acquire("x"));
    tokio::time::sleep(ms(100)).await;
    head.abort();
    held.release().await.unwrap();
    assert!(next.await.unwrap().unwrap().is_held());
    drained(&client).await;
    assert_eq!(w.server.entries(), 0);
}
