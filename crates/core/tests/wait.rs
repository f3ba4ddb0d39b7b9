//! Waiting: in order, within one limit, and with the obstacle named.

mod common;

use common::{World, drained, ms};
use fencelock_core::memory::{Delivery, Operation};
use fencelock_core::{ErrorKind, LockClient};
use std::sync::{Arc, Mutex};

#[tokio::test(start_paused = true)]
async fn waiters_of_several_clients_are_granted_in_order() {
    let w = World::new();
    let clients: Vec<_> = ["a", "b", "c"].map(|holder| w.client(holder)).into();
    let held = clients[0].acquire("x").await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for n in 0..30 {
        let (lock, order) = (clients[n % 3].named("x").wait_forever(), Arc::clone(&order));
        tasks.push(tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            order.lock().unwrap().push((n, guard.token()));
            guard.release().await.unwrap();
        }));
        tokio::time::sleep(ms(1)).await;
    }
    for n in [7, 13, 20] {
        tasks[n].abort();
    }
    tokio::time::sleep(ms(10)).await;
    held.release().await.unwrap();
    for task in tasks {
        let _ = task.await;
    }
    let order = order.lock().unwrap();
    let numbers: Vec<_> = order.iter().map(|(n, _)| *n).collect();
    assert_eq!(numbers, (0..30).filter(|n| ![7, 13, 20].contains(n)).collect::<Vec<_>>());
    assert!(order.is_sorted_by_key(|(_, token)| *token));
}

#[tokio::test(start_paused = true)]
async fn giving_up_names_no_holder_of_a_lock_that_nobody_holds() {
    let w = World::new();
    let (holder, client) = (w.client("somebody"), w.client("a"));
    let lock = holder.named("x").ttl(ms(60_000)).lock_delay(ms(50_000));
    let guard = lock.acquire().await.unwrap();
    assert!(client.force_release("x").await.unwrap());
    assert!(client.inspect("x").await.unwrap().is_none());
    for wait in [0, 2_000] {
        let e = client.named("x").wait_at_most(ms(wait)).acquire().await.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Timeout);
        assert!(e.message().contains("not free") && e.message().contains("lock delay"), "{e}");
        assert!(!e.message().contains("held"), "{e}");
    }
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn giving_up_says_what_stood_in_the_way() {
    let w = World::new();
    let client = w.client("a");
    let held = w.client("somebody").acquire("x").await.unwrap();
    let start = tokio::time::Instant::now();
    let e = client.named("x").wait_at_most(ms(12_345)).acquire().await.unwrap_err();
    assert_eq!(start.elapsed(), ms(12_345));
    assert_eq!(e.kind(), ErrorKind::Timeout);
    assert_eq!(e.to_string(), "memory: acquire: x: gave up waiting: still held by somebody after 12.345s");
    assert!(e.is_retryable());
    let e = client.named("x").wait_at_most(ms(0)).acquire().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Timeout, "no wait at all is one try: {e}");
    w.server.set_down(true);
    let e = client.named("x").wait_at_most(ms(2_000)).acquire().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    w.server.set_down(false);
    w.server.set_hung(true);
    let e = client.named("x").wait_at_most(ms(100)).acquire().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "no answer is not `held`: {e}");
    let start = tokio::time::Instant::now();
    let e = client.named("x").wait_forever().acquire().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "for ever only while the service answers: {e}");
    assert!(start.elapsed() >= ms(60_000) && start.elapsed() < ms(70_000), "{:?}", start.elapsed());
    w.server.set_hung(false);
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn a_timed_out_waiter_leaves_its_place() {
    let w = World::new();
    let (a, b) = (w.client("a"), w.client("b"));
    let held = a.acquire("x").await.unwrap();
    b.named("x").wait_at_most(ms(50)).acquire().await.unwrap_err();
    drained(&b).await;
    held.release().await.unwrap();
    assert_eq!(w.server.entries(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_outlasts_an_outage() {
    let w = World::new();
    let (a, b) = (w.client("a"), w.client("b"));
    let held = a.named("x").ttl(ms(1_000)).acquire().await.unwrap();
    let waiting = tokio::spawn({
        let lock = b.named("x");
        async move { lock.acquire().await }
    });
    tokio::time::sleep(ms(100)).await;
    w.server.set_down(true);
    held.lost().await;
    tokio::time::sleep(ms(3_000)).await;
    w.server.set_down(false);
    assert!(waiting.await.unwrap().unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_whose_grant_expired_unheard_tries_under_a_new_id() {
    let w = World::new();
    let (a, b) = (w.client("a"), w.client("b"));
    let held = a.acquire("x").await.unwrap();
    let waiting = tokio::spawn({
        let lock = b.named("x").ttl(ms(500));
        async move { lock.acquire().await }
    });
    tokio::time::sleep(ms(100)).await;
    // The waiter is handed the lock, and nothing it then sends arrives in time.
    for _ in 0..3 {
        w.server.inject(Operation::Acquire, Delivery::Lost);
    }
    held.release().await.unwrap();
    let guard = waiting.await.unwrap().unwrap();
    assert!(guard.is_held());
    guard.release().await.unwrap();
    drained(&b).await;
    assert_eq!(w.server.entries(), 0);
}

#[tokio::test(start_paused = true)]
async fn bad_input_is_refused_before_anything_is_sent() {
    let w = World::new();
    w.server.set_down(true);
    let client = w.client("a");
    for name in ["", "a\nb", &"x".repeat(513)] {
        assert_eq!(client.acquire(name).await.unwrap_err().kind(), ErrorKind::InvalidName);
        assert_eq!(client.try_acquire(name).await.unwrap_err().kind(), ErrorKind::InvalidName);
        assert_eq!(client.inspect(name).await.unwrap_err().kind(), ErrorKind::InvalidName);
    }
    for ttl in [ms(0), std::time::Duration::from_nanos(1), ms(49), ms(10 * 365 * 86_400_000)] {
        let e = client.named("x").ttl(ttl).acquire().await.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{e}");
    }
    let e = client.named("x").max_hold(ms(0)).acquire().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidConfig);
    let engine = Arc::new(fencelock_core::memory::MemoryLock::new());
    let e = LockClient::builder(engine).clock_drift(600_000).build().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidConfig);
    let far = client.named("x").wait_at_most(std::time::Duration::MAX);
    let waiting = tokio::time::timeout(ms(1_000), far.acquire()).await;
    assert!(waiting.is_err(), "the longest wait overflows nothing");
}
