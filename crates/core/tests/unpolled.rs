#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what it expects by panicking")]
//! Callers who do not poll hold nobody up, whatever their work has in hand just then.

mod common;

use async_trait::async_trait;
use common::{World, drained, ms};
use fencelock_core::memory::{Delivery, MemoryLock, Operation};
use fencelock_core::{
    Admin, Attempt, Claim, DistributedLock, Evidence, Grant, Guarantees, HolderInfo, Lease, Liveness, LockClient,
    LockName, LossReason, Polling, Result, Scope, Validity,
};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

/// Polled once, by nobody who would hear that it can go on.
fn begun<F: Future>(future: F) -> Pin<Box<F>> {
    let mut future = Box::pin(future);
    assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    future
}

/// The engine in memory with one connection, on which each request takes a millisecond; waiting by polling.
#[derive(Clone, Debug)]
struct Narrow {
    engine: MemoryLock,
    polling: Polling,
    connection: Arc<Semaphore>,
    liveness: Liveness,
}

struct NarrowLease {
    lease: Box<dyn Lease>,
    engine: Narrow,
    _hold: fencelock_core::LocalHold,
}

impl Narrow {
    fn client(w: &World, liveness: Liveness) -> LockClient {
        let engine = MemoryLock::on(&w.server).with_request_limit(ms(200));
        let connection = Arc::new(Semaphore::new(1));
        let narrow = Self { engine, polling: Polling::new(), connection, liveness };
        LockClient::builder(Arc::new(narrow)).clock(w.clock.clock()).build().unwrap()
    }

    async fn send<F: Future>(&self, request: F) -> F::Output {
        let _connection = self.connection.acquire().await.unwrap();
        tokio::time::sleep(ms(1)).await;
        request.await
    }
}

#[async_trait]
impl DistributedLock for Narrow {
    fn guarantees(&self) -> Arc<Guarantees> {
        Arc::new(Guarantees::of("narrow", "a test", Scope::Process, self.liveness))
    }
    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt> {
        Ok(match self.send(self.engine.try_acquire(claim)).await? {
            Attempt::Granted(Grant { claim, lease, sent_at, token, .. }) => {
                let lease = NarrowLease { lease, engine: self.clone(), _hold: self.polling.hold(claim.name()) };
                let grant = Grant::new(&claim, lease, sent_at, token);
                // In a session the server keeps it for longer than the holder may believe in it.
                let is_session = self.liveness == Liveness::Session;
                Attempt::Granted(if is_session { grant.with_ttl(ms(1_000)) } else { grant })
            }
            contended => contended,
        })
    }
    async fn acquire(&self, claim: &Claim) -> Result<Grant> {
        self.polling.acquire(self, None, claim).await
    }
    async fn abandon(&self, claim: &Claim) -> Result<()> {
        self.send(self.engine.abandon(claim)).await
    }
    async fn inspect(&self, name: &LockName) -> Result<Option<HolderInfo>> {
        self.send(self.engine.inspect(name)).await
    }
    fn admin(&self) -> Option<&dyn Admin> {
        None
    }
}

#[async_trait]
impl Lease for NarrowLease {
    async fn keep_alive(&self, validity: &Validity) -> LossReason {
        self.lease.keep_alive(validity).await
    }
    async fn extend(&self, ttl: Duration, validity: &Validity) -> Result<()> {
        self.lease.extend(ttl, validity).await
    }
    async fn release(self: Box<Self>) -> Result<()> {
        let Self { lease, engine, _hold } = *self;
        engine.send(lease.release()).await
    }
    fn evidence(&self) -> Evidence {
        Evidence::none()
    }
}

#[tokio::test(start_paused = true)]
async fn no_connection_is_kept() {
    let w = World::new();
    let client = Narrow::client(&w, Liveness::Lease);
    let guard = client.acquire("x").await.unwrap();
    // Each of them has the only connection when it is left.
    let left = begun(client.acquire("a"));
    timeout(ms(100), client.inspect("b")).await.expect("an acquire that is not polled keeps nothing").unwrap();
    let tried = begun(client.try_acquire("c"));
    timeout(ms(100), client.inspect("b")).await.expect("nor does a single try").unwrap();
    let released = begun(guard.release());
    timeout(ms(100), client.inspect("b")).await.expect("nor does a release").unwrap();
    assert!(w.client("other").try_acquire("x").await.unwrap().is_some(), "which went on");
    let looked = begun(client.inspect("a"));
    timeout(ms(100), client.inspect("b")).await.expect("nor does anything else").unwrap();
    assert!(left.await.unwrap().is_held(), "it is taken up again");
    assert!(tried.await.unwrap().unwrap().is_held());
    released.await.unwrap();
    assert!(looked.await.unwrap().is_some());
    drained(&client).await;
}

#[tokio::test(start_paused = true)]
async fn no_turn_is_kept() {
    let w = World::new();
    let client = Narrow::client(&w, Liveness::Lease);
    let held = w.client("other").acquire("x").await.unwrap();
    let lock = client.named("x").ttl(ms(1_000));
    // The first has the turn when it is left, the second waits for it.
    let left = (begun(lock.acquire()), begun(lock.acquire()));
    let waiting = tokio::spawn(lock.acquire());
    tokio::time::sleep(ms(100)).await;
    let freed = Instant::now();
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    let waited = freed.elapsed();
    assert!(waited >= ms(1_800) && waited < ms(3_200), "two grants that nobody took ran out: {waited:?}");
    drop(left);
    drained(&client).await;
    assert_eq!(w.server.entries(), 0);
}

#[tokio::test(start_paused = true)]
async fn no_place_in_the_servers_queue_is_kept() {
    let w = World::new();
    let (client, other) = (w.client("a"), w.client("b"));
    let held = other.acquire("x").await.unwrap();
    w.server.inject(Operation::Acquire, Delivery::Late(ms(5)));
    let left = begun(client.named("x").ttl(ms(1_000)).acquire());
    tokio::time::sleep(ms(50)).await;
    let waiting = tokio::spawn(other.acquire("x"));
    tokio::time::sleep(ms(50)).await;
    let freed = Instant::now();
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    assert!(freed.elapsed() < ms(1_200), "a grant that nobody took ran out: {:?}", freed.elapsed());
    drop(left);
    drained(&client).await;
}

#[tokio::test(start_paused = true)]
async fn no_grant_is_kept_in_a_session() {
    let w = World::new();
    let client = Narrow::client(&w, Liveness::Session);
    // The server would keep it for a minute.
    let left = begun(client.named("x").ttl(ms(60_000)).acquire());
    tokio::time::sleep(ms(100)).await;
    let other = w.client("other");
    assert!(other.try_acquire("x").await.unwrap().is_none(), "granted, and not taken yet");
    let guard = other.named("x").wait_at_most(ms(2_000)).acquire().await.expect("undone when it was over");
    guard.release().await.unwrap();
    assert!(left.await.unwrap().is_held(), "asked for anew");
    drained(&client).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_polled_stays_with_its_caller_until_it_queues() {
    let w = World::new();
    let client = Narrow::client(&w, Liveness::Lease);
    tokio::time::sleep(ms(1)).await;
    let before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let acquiring = client.acquire("x");
    tokio::pin!(acquiring);
    assert!(timeout(ms(0), &mut acquiring).await.is_err());
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), before, "no task of its own");
    let guard = acquiring.await.unwrap();
    let waiting = begun(client.acquire("x"));
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), before + 1, "it waits, so it has one");
    drop(waiting);
    guard.release().await.unwrap();
    drained(&client).await;
}
