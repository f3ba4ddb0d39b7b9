#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says what it expects by panicking")]
//! Nested calls of one scope share one hold.

mod common;

use common::{World, drained, ms, real};
use fencelock_core::memory::{Delivery, Operation};
use fencelock_core::{ErrorKind, LockName, ReentrantGuard, ReentrantScope, Result};
use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn nested_calls_share_one_hold_and_the_last_releases_it() {
    let w = World::new();
    let (client, other) = (w.client("a"), w.client("b"));
    let job = client.reentrant("job");
    let outer = job.acquire("x").await.unwrap();
    let nested = job.named("x").wait_at_most(Duration::ZERO).acquire().await.unwrap();
    let tried = client.reentrant("job").try_acquire("x").await.unwrap().expect("the same scope by its name");
    assert!(outer.token() == nested.token() && outer.claim_id() == tried.claim_id());
    assert_eq!((outer.shares(), job.names(), client.held()), (3, 1, 1));
    assert!(client.reentrant("another").try_acquire("x").await.unwrap().is_none(), "a scope of its own");
    assert_eq!(other.inspect("x").await.unwrap().unwrap().note.as_deref(), Some("job"));
    outer.release().await.unwrap();
    drop(nested);
    assert!(tried.is_held() && other.try_acquire("x").await.unwrap().is_none());
    let token = tried.token();
    tried.release().await.unwrap();
    assert_eq!(job.names(), 0);
    let next = other.try_acquire("x").await.unwrap().expect("free with the last");
    assert!(next.token() > token);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_last_releases() {
    let w = World::new();
    let client = w.client("a");
    let job = client.reentrant("job");
    let (first, second) = (job.acquire("x").await.unwrap(), job.acquire("x").await.unwrap());
    drop(first);
    drained(&client).await;
    assert_eq!((client.held(), second.shares()), (1, 1));
    drop((second, job));
    drained(&client).await;
    assert_eq!((client.held(), w.server.entries()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn first_acquires_join_one_attempt_and_one_may_go() {
    let w = World::new();
    let (client, other) = (w.client("a"), w.client("b"));
    let held = other.acquire("x").await.unwrap();
    let job = client.reentrant("job");
    let mut first = Box::pin(job.acquire("x"));
    let mut second = Box::pin(job.named("x").wait_at_most(ms(700)).acquire());
    let third = tokio::spawn(job.acquire("x"));
    poll_once(&mut first).await;
    poll_once(&mut second).await;
    tokio::time::sleep(ms(20)).await;
    assert_eq!(w.server.entries(), 1);
    drop(first);
    let gave_up = second.await.unwrap_err();
    assert_eq!((gave_up.kind(), gave_up.message()), (ErrorKind::Timeout, "still held by b after 700ms"));
    assert!(job.try_acquire("x").await.unwrap().is_none(), "a try goes by what the wait has met");
    // In the queue since the first asked: it comes before one that asks now.
    let late = tokio::spawn(w.client("c").acquire("x"));
    tokio::time::sleep(ms(20)).await;
    held.release().await.unwrap();
    let granted = third.await.unwrap().unwrap();
    assert!(granted.is_held() && !late.is_finished());
    granted.release().await.unwrap();
    late.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_loss_removes_the_entry() {
    let w = World::new();
    let client = w.client("a");
    let job = client.reentrant("job");
    let outer = job.named("x").ttl(ms(900)).acquire().await.unwrap();
    let nested = job.acquire("x").await.unwrap();
    let stolen = w.server.steal(&LockName::new("x").unwrap(), ms(5_000)).unwrap();
    let reason = outer.lost().await;
    assert_eq!(nested.lost().await, reason);
    assert!(job.try_acquire("x").await.unwrap().is_none(), "it is the thief's");
    let next = job.acquire("x").await.unwrap();
    assert!(next.token() > stolen && !outer.is_held() && !nested.is_held());
    assert_eq!(outer.release().await.unwrap_err().kind(), ErrorKind::Lost);
    drop(nested);
    assert!(next.is_held() && next.shares() == 1);
    next.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nested_options_must_fit() {
    let w = World::new();
    let job = w.client("a").reentrant("job");
    let outer = job.named("x").ttl(ms(5_000)).max_hold(ms(60_000)).acquire().await.unwrap();
    let odd = job.named("x").ttl(ms(5_001)).acquire().await.unwrap_err();
    assert_eq!(odd.kind(), ErrorKind::InvalidConfig, "{odd}");
    assert_eq!(outer.shares(), 1, "refused, and nothing of it left");
    job.named("x").ttl(ms(5_000)).note("mine").acquire().await.unwrap().release().await.unwrap();
    assert!(outer.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_fixed_lease_is_extended_for_all() {
    let w = World::new();
    let job = w.client("a").reentrant("job");
    let outer = job.named("x").ttl(ms(1_000)).auto_renew(false).acquire().await.unwrap();
    let nested = job.acquire("x").await.unwrap();
    nested.extend(ms(9_000)).await.unwrap();
    assert!(outer.remaining() > ms(8_000));
}

#[test]
fn a_nested_call_needs_no_runtime_that_is_driven() {
    let home = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (outer, job) = home.block_on(async {
        let job = real().1().reentrant("job");
        (job.acquire("x").await.unwrap(), job)
    });
    // Nobody drives the client's runtime now.
    let elsewhere = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let nested =
        elsewhere.block_on(async { tokio::time::timeout(ms(5_000), job.acquire("x")).await.unwrap().unwrap() });
    assert_eq!(nested.token(), outer.token());
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_told_to_all_who_wait() {
    let w = World::new();
    let client = w.client("a");
    let job = client.reentrant("job");
    w.server.set_down(true);
    let tries = (job.try_acquire("x"), job.try_acquire("x"));
    let (one, two) = tokio::join!(tries.0, tries.1);
    assert_eq!((one.unwrap_err().kind(), two.unwrap_err().kind()), (ErrorKind::Unavailable, ErrorKind::Unavailable));
    let waited = job.named("x").wait_at_most(ms(500)).acquire().await.unwrap_err();
    assert_eq!(waited.kind(), ErrorKind::Unavailable);
    assert_eq!(job.names(), 0);
    w.server.set_down(false);
    let waiting = tokio::spawn(w.client("b").reentrant("j").named("y").wait_forever().acquire());
    waiting.await.unwrap().unwrap().release().await.unwrap();
    client.close().await;
    assert_eq!(job.acquire("x").await.unwrap_err().kind(), ErrorKind::Unavailable);
}

async fn poll_once<F: Future + Unpin>(future: &mut F) {
    poll_fn(|cx| {
        assert!(std::pin::Pin::new(&mut *future).poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
}

/// Drops the future after so many polls, unless it has ended.
async fn polled<F: Future>(mut polls: usize, future: F) -> Option<F::Output> {
    let mut future = Box::pin(future);
    poll_fn(|cx| {
        if polls == 0 {
            return Poll::Ready(None);
        }
        polls -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if polls == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn cut_at_every_await_point() {
    let w = World::new();
    let (client, other) = (w.client("a"), w.client("b"));
    let job = client.reentrant("job");
    for polls in 0..200 {
        w.server.inject(Operation::Acquire, Delivery::Late(ms(5)));
        let done = polled(polls, job.acquire("x")).await;
        let ended = done.is_some();
        if let Some(guard) = done {
            guard.unwrap().release().await.unwrap();
        }
        drained(&client).await;
        assert_eq!((client.held(), job.names()), (0, 0));
        other.try_acquire("x").await.unwrap().expect("free at once").release().await.unwrap();
        if ended {
            assert!(polls > 1);
            assert_eq!(w.server.entries(), 0);
            return;
        }
    }
    panic!("never completed");
}

#[tokio::test(start_paused = true)]
async fn cut_at_every_millisecond_on_the_way() {
    let w = World::new();
    let (client, other) = (w.client("a"), w.client("b"));
    let job = client.reentrant("job");
    let mut granted = 0;
    // Each request takes 5 ms, with two calls that begin and end at different times.
    for (first, second) in (0..12).flat_map(|first| (0..12).map(move |second| (first, second))) {
        w.server.inject(Operation::Acquire, Delivery::Late(ms(5)));
        let one = tokio::time::timeout(ms(first), job.acquire("x"));
        let two = async {
            tokio::time::sleep(ms(second / 3)).await;
            tokio::time::timeout(ms(second), job.try_acquire("x")).await
        };
        let (one, two) = tokio::join!(one, two);
        granted += u32::from(one.is_ok()) + u32::from(two.is_ok());
        drop((one, two));
        drained(&client).await;
        assert_eq!((client.held(), job.names()), (0, 0), "{first} {second}");
        other.try_acquire("x").await.unwrap().expect("free at once").release().await.unwrap();
    }
    assert!(granted > 50 && granted < 280, "{granted}");
    assert_eq!(w.server.entries(), 0);
}

async fn some_work(job: ReentrantScope, other: ReentrantScope, round: u64) -> Result<()> {
    let nap = |most| tokio::time::sleep(Duration::from_micros(fastrand::u64(0..most)));
    let scope = if round.is_multiple_of(3) { other } else { job };
    let outer = scope.acquire("x").await?;
    nap(400).await;
    let nested: Option<ReentrantGuard> = scope.try_acquire("x").await?;
    assert!(!outer.is_held() || nested.is_some_and(|nested| nested.token() == outer.token()));
    nap(400).await;
    outer.release().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_at_a_thousand_random_instants() {
    let (server, client) = real();
    let (a, b) = (client(), client());
    let (job, other) = (a.reentrant("job"), b.reentrant("job"));
    let mut tasks = tokio::task::JoinSet::new();
    for lane in 0..4 {
        let (job, other, server) = (job.clone(), other.clone(), server.clone());
        tasks.spawn(async move {
            let mut done = 0;
            for round in 0..250 {
                if round % 2 == 0 {
                    let late = Duration::from_micros(fastrand::u64(0..600));
                    server.inject(Operation::Acquire, Delivery::Late(late));
                }
                let limit = Duration::from_micros(fastrand::u64(0..4_000));
                let work = some_work(job.clone(), other.clone(), round + lane);
                if tokio::time::timeout(limit, work).await.is_ok_and(|done| done.is_ok()) {
                    done += 1;
                }
            }
            done
        });
    }
    let done: i32 = tasks.join_all().await.into_iter().sum();
    assert!(done > 20 && done < 980, "{done}: both ways were taken");
    drained(&a).await;
    drained(&b).await;
    assert_eq!((a.held(), b.held(), job.names(), other.names(), server.entries()), (0, 0, 0, 0, 0));
}
