//! Guards, monitors and clients: dropped anywhere, awaited anywhere.

mod common;

use common::{World, drained, ms};
use fencelock_core::memory::{MemoryLock, MemoryServer};
use fencelock_core::{
    ClientBuilder, DistributedLock, Ended, Error, ErrorKind, LockClient, LockGuard, LockMonitor, LossReason, NamedLock,
};
use std::sync::Arc;

fn assert_traits<T: Send + Sync + 'static>() {}

#[test]
fn auto_traits_and_object_safety() {
    assert_traits::<LockGuard>();
    assert_traits::<LockMonitor>();
    assert_traits::<LockClient>();
    assert_traits::<NamedLock>();
    assert_traits::<ClientBuilder>();
    assert_traits::<Error>();
    assert_traits::<Arc<dyn DistributedLock>>();
    fn sendable<T: Send>(_: T) {}
    let _ = |lock: NamedLock| sendable(async move { lock.acquire().await });
    let _ = |guard: LockGuard| sendable(guard.release());
}

#[tokio::test(start_paused = true)]
async fn drop_releases_in_the_background() {
    let w = World::new();
    let client = w.client("a");
    let guard = client.acquire("x").await.unwrap();
    let monitor = guard.monitor();
    drop(guard);
    assert!(!monitor.is_held(), "at once");
    assert_eq!(monitor.ended().await, Ended::Released);
    client.close().await;
    assert_eq!(w.server.entries(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_takes_its_tasks_along() {
    let engine = Arc::new(MemoryLock::new());
    let weak = Arc::downgrade(&engine);
    let client = LockClient::new(engine).unwrap();
    let guard = client.acquire("x").await.unwrap();
    drop(client);
    tokio::time::sleep(ms(60_000)).await;
    assert!(guard.is_held(), "a guard needs no client");
    drop(guard);
    tokio::time::sleep(ms(1_000)).await;
    assert!(weak.upgrade().is_none(), "nothing keeps the engine");
}

#[tokio::test(start_paused = true)]
async fn a_monitor_of_what_is_over_keeps_nothing() {
    let engine = Arc::new(MemoryLock::new());
    let weak = Arc::downgrade(&engine);
    let client = LockClient::new(engine).unwrap();
    let guard = client.acquire("x").await.unwrap();
    let monitor = guard.monitor();
    guard.release().await.unwrap();
    drop(client);
    tokio::time::sleep(ms(1_000)).await;
    assert!(weak.upgrade().is_none());
    assert_eq!(monitor.ended().await, Ended::Released);
}

#[tokio::test(start_paused = true)]
async fn closing_waits_for_releases_and_ends_waits() {
    let w = World::new();
    let client = w.client("a");
    let (x, y) = (client.acquire("x").await.unwrap(), client.acquire("y").await.unwrap());
    let waiting = tokio::spawn(client.named("x").wait_forever().acquire());
    w.server.inject(fencelock_core::memory::Operation::Release, fencelock_core::memory::Delivery::Late(ms(100)));
    let releasing = tokio::spawn(y.release());
    tokio::time::sleep(ms(10)).await;
    assert_eq!(client.pending(), 1, "a release that is awaited elsewhere");
    client.close().await;
    assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
    releasing.await.unwrap().unwrap();
    assert!(x.is_held(), "guards stay");
    assert_eq!(w.server.entries(), 1);
}

#[test]
fn an_end_is_told_though_the_runtime_goes_in_the_middle_of_a_release() {
    let rt = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server = MemoryServer::new();
    let (client, guard) = rt.block_on(async {
        let client = LockClient::new(Arc::new(MemoryLock::on(&server))).unwrap();
        let guard = client.acquire("x").await.unwrap();
        (client, guard)
    });
    let monitor = guard.monitor();
    server.set_hung(true);
    drop(guard);
    std::thread::sleep(ms(50));
    rt.shutdown_background();
    let other = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ended = other.block_on(async { tokio::time::timeout(ms(5_000), monitor.ended()).await });
    assert_eq!(ended.unwrap(), Ended::Released, "what must be held ended when the release began");
    drop(client);
}

#[test]
fn a_runtime_without_timers_is_refused() {
    let rt = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let e = rt.block_on(async { LockClient::new(Arc::new(MemoryLock::new())).unwrap_err() });
    assert_eq!(e.kind(), ErrorKind::InvalidConfig);
}

#[tokio::test(start_paused = true)]
async fn our_own_release_is_no_loss() {
    let w = World::new();
    let guard = w.client("a").acquire("x").await.unwrap();
    let monitor = guard.monitor();
    guard.release().await.unwrap();
    assert!(tokio::time::timeout(ms(600_000), monitor.lost()).await.is_err());
    assert_eq!(monitor.ended().await, Ended::Released);
}

#[tokio::test(start_paused = true)]
async fn a_release_whose_caller_goes_is_finished() {
    let w = World::new();
    let client = w.client("a");
    let guard = client.acquire("x").await.unwrap();
    w.server.inject(fencelock_core::memory::Operation::Release, fencelock_core::memory::Delivery::Late(ms(50)));
    assert!(tokio::time::timeout(ms(1), guard.release()).await.is_err());
    drained(&client).await;
    assert_eq!((w.server.entries(), client.held()), (0, 0));
}

#[test]
fn a_guard_may_be_dropped_on_any_thread_and_after_its_runtime() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server = MemoryServer::new();
    let rt = runtime();
    let client = rt.block_on(async { LockClient::new(Arc::new(MemoryLock::on(&server))).unwrap() });
    let guard = rt.block_on(client.acquire("x")).unwrap();
    std::thread::spawn(move || drop(guard)).join().unwrap();
    let guard = rt.block_on(client.named("x").ttl(ms(200)).acquire()).unwrap();
    let monitor = guard.monitor();
    drop(rt);
    let other = runtime();
    assert_eq!(other.block_on(monitor.lost()), LossReason::SessionEnded, "nobody renews it any more");
    drop(guard);
    assert_eq!(other.block_on(client.acquire("y")).unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(other.block_on(client.inspect("y")).unwrap_err().kind(), ErrorKind::Unavailable);
    other.block_on(client.close());
    let next = other.block_on(async { LockClient::new(Arc::new(MemoryLock::on(&server))).unwrap().acquire("x").await });
    assert!(next.expect("the lease ran out").is_held());
}

#[test]
fn calls_may_be_awaited_on_another_runtime_and_on_none() {
    let home = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let client = home.block_on(async { LockClient::new(Arc::new(MemoryLock::new())).unwrap() });
    let away = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let guard = away.block_on(client.acquire("x")).unwrap();
    let e = away.block_on(client.named("x").wait_at_most(ms(50)).acquire()).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Timeout, "its timers run on the client's runtime: {e}");
    assert!(away.block_on(client.try_acquire("x")).unwrap().is_none());
    away.block_on(guard.release()).unwrap();

    // No runtime at all: polled by hand on a plain thread.
    let mut waiting = Box::pin(client.acquire("x"));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let guard = (0..2_000).find_map(|_| match waiting.as_mut().poll(&mut cx) {
        std::task::Poll::Ready(guard) => Some(guard),
        std::task::Poll::Pending => {
            std::thread::sleep(ms(1));
            None
        }
    });
    drop(guard.expect("granted").unwrap());
    // Dropped half way, off its runtime.
    let held = home.block_on(client.acquire("x")).unwrap();
    let mut waiting = Box::pin(client.acquire("x"));
    assert!(waiting.as_mut().poll(&mut cx).is_pending());
    drop(waiting);
    home.block_on(held.release()).unwrap();
    home.block_on(async {
        drained(&client).await;
        client.try_acquire("x").await.unwrap().expect("free").release().await.unwrap();
    });
}

#[test]
fn a_client_needs_a_runtime_to_be_made() {
    let e = LockClient::new(Arc::new(MemoryLock::new())).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable);
    assert!(e.message().contains("runtime"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewing_task_that_dies_is_a_loss() {
    use fencelock_core::{
        Attempt, Claim, Evidence, FencingToken, Grant, Guarantees, HolderInfo, Lease, LockName, Result, Validity,
    };

    #[derive(Debug)]
    struct Panics(MemoryLock);
    struct PanickingLease;
    #[async_trait::async_trait]
    impl DistributedLock for Panics {
        fn guarantees(&self) -> Arc<Guarantees> {
            self.0.guarantees()
        }
        async fn try_acquire(&self, claim: &Claim) -> Result<Attempt> {
            Ok(Attempt::Granted(Grant::new(claim, PanickingLease, claim.now(), FencingToken::new(1))))
        }
        async fn acquire(&self, claim: &Claim) -> Result<Grant> {
            Ok(Grant::new(claim, PanickingLease, claim.now(), FencingToken::new(1)))
        }
        async fn abandon(&self, _: &Claim) -> Result<()> {
            Ok(())
        }
        async fn inspect(&self, _: &LockName) -> Result<Option<HolderInfo>> {
            Ok(None)
        }
        fn admin(&self) -> Option<&dyn fencelock_core::Admin> {
            None
        }
    }
    #[async_trait::async_trait]
    impl Lease for PanickingLease {
        async fn keep_alive(&self, _: &Validity) -> LossReason {
            panic!("a bug in an engine");
        }
        async fn extend(&self, _: std::time::Duration, _: &Validity) -> Result<()> {
            Ok(())
        }
        async fn release(self: Box<Self>) -> Result<()> {
            Ok(())
        }
        fn evidence(&self) -> Evidence {
            Evidence::none()
        }
    }
    let client = LockClient::new(Arc::new(Panics(MemoryLock::new()))).unwrap();
    // Before the task is dropped its panic is printed, with the backtrace that may be asked for, which takes long.
    let guard = client.named("x").ttl(ms(3_000)).acquire().await.unwrap();
    let reason =
        tokio::time::timeout(ms(2_800), guard.lost()).await.expect("told when the task died, before the deadline");
    assert_eq!(reason, LossReason::SessionEnded);
    assert_eq!(client.list("").await.unwrap_err().kind(), ErrorKind::Unsupported);
}

/// On a clock that stands still while something runs: twenty thousand renewals a second are much for a busy machine.
#[tokio::test(start_paused = true)]
async fn ten_thousand_holds_are_renewed_and_given_back() {
    let w = World::new();
    let client = w.client("a");
    let mut guards = Vec::new();
    for n in 0..10_000 {
        guards.push(client.named(&format!("n{n}")).ttl(ms(1_500)).acquire().await.unwrap());
    }
    tokio::time::sleep(ms(3_000)).await;
    assert!(guards.iter().all(LockGuard::is_held));
    assert_eq!((w.server.entries(), client.held()), (10_000, 10_000));
    drop(guards);
    drained(&client).await;
    assert_eq!((w.server.entries(), client.held()), (0, 0));
}
