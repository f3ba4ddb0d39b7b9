#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says what it expects by panicking")]
//! A call dropped at any point leaves nothing behind.

mod common;

use common::{World, drained, ms, real};
use fencelock_core::{LockClient, LockGuard, Result};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

/// Polls a future at most so many times, then drops it.
struct Polls<F> {
    future: Pin<Box<F>>,
    left: usize,
}

impl<F: Future> Future for Polls<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        match self.future.as_mut().poll(cx) {
            Poll::Ready(out) => Poll::Ready(Some(out)),
            Poll::Pending if self.left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// Drops `make`'s future after one poll, after two, and so on until it completes; then the lock is free.
async fn at_every_await_point<F>(client: &LockClient, make: impl Fn() -> F) -> usize
where
    F: Future<Output = Result<LockGuard>>,
{
    for polls in 0..200 {
        let done = Polls { future: Box::pin(make()), left: polls }.await;
        let completed = done.is_some();
        if let Some(guard) = done {
            guard.unwrap().release().await.unwrap();
        }
        drained(client).await;
        assert_eq!(client.held(), 0);
        let other = client.try_acquire("x").await.unwrap();
        other.expect("free at once").release().await.unwrap();
        if completed {
            return polls;
        }
    }
    panic!("never completed");
}

#[tokio::test(start_paused = true)]
async fn at_every_await_point_when_free() {
    let w = World::new();
    let client = w.client("a");
    at_every_await_point(&client, || client.acquire("x")).await;
    assert_eq!(w.server.entries(), 0);
}

#[tokio::test(start_paused = true)]
async fn at_every_await_point_over_a_slow_network() {
    use fencelock_core::memory::{Delivery, Operation};
    let w = World::new();
    let client = w.client("a");
    let polls = at_every_await_point(&client, || {
        w.server.inject(Operation::Acquire, Delivery::Late(ms(5)));
        client.acquire("x")
    })
    .await;
    assert!(polls > 1, "it was cut while the request was on its way");
    assert_eq!(w.server.entries(), 0);
}

#[tokio::test(start_paused = true)]
async fn at_every_await_point_when_held() {
    let w = World::new();
    let (client, other) = (w.client("a"), w.client("b"));
    for polls in 1..20 {
        let guard = other.acquire("x").await.unwrap();
        let mut waiting = Box::pin(Polls { future: Box::pin(client.acquire("x")), left: polls });
        // The waiter is polled when it naps, so after a while it has been dropped at its last poll or waits.
        let cut = tokio::time::timeout(ms(3_000), &mut waiting).await;
        assert!(cut.is_err() || cut.is_ok_and(|done| done.is_none()));
        let behind = tokio::spawn(w.client("c").acquire("x"));
        tokio::time::sleep(ms(10)).await;
        drop(waiting);
        guard.release().await.unwrap();
        behind.await.unwrap().unwrap().release().await.unwrap();
        drained(&client).await;
        assert_eq!(w.server.entries(), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_a_thousand_random_instants() {
    use fencelock_core::memory::{Delivery, Operation};
    let (server, client) = real();
    let (a, b) = (client(), client());
    let mut granted = 0;
    for round in 0..1_000 {
        if round % 2 == 0 {
            server.inject(Operation::Acquire, Delivery::Late(std::time::Duration::from_micros(fastrand::u64(0..900))));
        }
        let held = if round % 3 == 0 { b.try_acquire("x").await.unwrap() } else { None };
        let limit = std::time::Duration::from_micros(fastrand::u64(0..2_000));
        match tokio::time::timeout(limit, a.acquire("x")).await {
            Ok(guard) => {
                granted += 1;
                drop(guard.unwrap());
            }
            Err(_) => drop(held),
        }
    }
    assert!(granted > 20 && granted < 980, "{granted}: both ways were taken");
    drained(&a).await;
    drained(&b).await;
    assert_eq!((server.entries(), a.held(), b.held()), (0, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_soak_of_five_thousand_tasks() {
    let (server, client) = real();
    let clients: Arc<Vec<_>> = Arc::new((0..5).map(|_| client()).collect());
    let inside = Arc::new(AtomicUsize::new(0));
    let done = Arc::new(AtomicUsize::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..5_000 {
        let (clients, inside, done) = (Arc::clone(&clients), Arc::clone(&inside), Arc::clone(&done));
        tasks.spawn(async move {
            let lock = clients[task % 5].named(&format!("name {}", task % 7)).wait_forever();
            let work = async {
                let guard = lock.acquire().await.unwrap();
                if task % 7 == 0 {
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                }
                done.fetch_add(1, Ordering::SeqCst);
                if task % 2 == 0 {
                    guard.release().await.unwrap();
                }
            };
            // Cut inside the critical section too, so the counter is only touched where nothing is cut.
            if task % 7 == 0 || fastrand::bool() {
                work.await;
            } else {
                let _ = tokio::time::timeout(std::time::Duration::from_micros(fastrand::u64(0..3_000)), work).await;
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    assert!(done.load(Ordering::SeqCst) > 2_000);
    for client in clients.iter() {
        drained(client).await;
        assert_eq!(client.held(), 0);
    }
    assert_eq!(server.entries(), 0, "{server:?}");
}
