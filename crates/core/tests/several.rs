#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says what it expects by panicking")]
//! Several names at once: all or nothing.

mod common;

use common::{World, drained, ms, real};
use fencelock_core::memory::{Delivery, Operation};
use fencelock_core::{ErrorKind, LockName, LossReason};
use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn sorted_once_each_with_a_token_of_its_own() {
    let w = World::new();
    let (client, other) = (w.client("a"), w.client("b"));
    let all = client.all(["c", "a", "b", "a"]).note("req").acquire().await.unwrap();
    let names: Vec<_> = all.names().map(LockName::as_str).collect();
    assert_eq!(names, ["a", "b", "c"]);
    let tokens: Vec<_> = all.tokens().map(|(_, token)| token).collect();
    assert!(tokens.is_sorted() && all.token("b") == Some(tokens[1]) && all.token("d").is_none());
    assert!(all.is_held() && !all.in_jeopardy() && client.held() == 3);
    for name in ["a", "b", "c"] {
        assert!(other.try_acquire(name).await.unwrap().is_none());
        assert_eq!(other.inspect(name).await.unwrap().unwrap().note.as_deref(), Some("req"));
    }
    let monitor = all.monitor();
    all.release().await.unwrap();
    assert_eq!(monitor.ended().await, fencelock_core::Ended::Released);
    assert_eq!((client.held(), w.server.entries()), (0, 0));
    assert_eq!(client.all([""; 0]).acquire().await.unwrap_err().kind(), ErrorKind::InvalidConfig);
    assert_eq!(client.all(["a", ""]).acquire().await.unwrap_err().kind(), ErrorKind::InvalidName);
}

#[tokio::test(start_paused = true)]
async fn one_that_is_held_leaves_nothing_of_the_others() {
    let w = World::new();
    let (client, other) = (w.client("a"), w.client("b"));
    let held = other.acquire("m").await.unwrap();
    assert!(client.all(["z", "m", "a"]).try_acquire().await.unwrap().is_none());
    assert_eq!((client.held(), client.pending(), w.server.entries()), (0, 0, 1), "gone before it is answered");
    let started = tokio::time::Instant::now();
    let late = client.all(["z", "m", "a"]).wait_at_most(ms(500)).acquire().await.unwrap_err();
    assert_eq!((late.kind(), late.lock_name().map(LockName::as_str)), (ErrorKind::Timeout, Some("m")), "{late}");
    assert!(started.elapsed() >= ms(500) && started.elapsed() < ms(600));
    drained(&client).await;
    assert_eq!((client.held(), w.server.entries()), (0, 1));
    held.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_deadline_for_the_whole() {
    let w = World::new();
    let (client, other) = (w.client("a"), w.client("b"));
    let (first, second) = (other.acquire("1").await.unwrap(), other.acquire("2").await.unwrap());
    let started = tokio::time::Instant::now();
    let waiting = tokio::spawn(client.all(["1", "2"]).wait_at_most(ms(1_000)).acquire());
    tokio::time::sleep(ms(700)).await;
    first.release().await.unwrap();
    let kind = waiting.await.unwrap().unwrap_err().kind();
    assert_eq!(kind, ErrorKind::Timeout);
    assert!(started.elapsed() >= ms(1_000) && started.elapsed() < ms(1_200), "{:?}", started.elapsed());
    drained(&client).await;
    assert_eq!(client.held(), 0);
    drop(second);
}

#[tokio::test(start_paused = true)]
async fn losing_one_loses_all() {
    let w = World::new();
    let client = w.client("a");
    let all = client.all(["1", "2", "3"]).ttl(ms(900)).acquire().await.unwrap();
    let monitor = all.monitor();
    w.server.steal(&LockName::new("2").unwrap(), ms(60_000)).unwrap();
    let work = all.while_held(std::future::pending::<()>()).await.unwrap_err();
    assert_eq!(work.kind(), ErrorKind::Lost);
    assert!(!all.is_held() && monitor.lost().await == LossReason::Revoked);
    tokio::time::sleep(ms(5)).await;
    assert!(monitor.parts().all(|part| !part.is_held()), "the others with it");
    assert_eq!(client.held(), 0);
    assert_eq!(all.release().await.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test(start_paused = true)]
async fn one_lost_while_another_is_waited_for_begins_anew() {
    let w = World::new();
    let (client, other) = (w.client("a"), w.client("b"));
    let held = other.acquire("2").await.unwrap();
    let waiting = tokio::spawn(client.all(["1", "2"]).ttl(ms(600)).acquire());
    tokio::time::sleep(ms(50)).await;
    let stolen = w.server.steal(&LockName::new("1").unwrap(), ms(1_000)).unwrap();
    tokio::time::sleep(ms(400)).await;
    held.release().await.unwrap();
    let all = waiting.await.unwrap().unwrap();
    assert!(all.is_held() && all.token("1") > Some(stolen));
    all.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn giving_back_the_rest_does_not_outlast_the_wait() {
    let w = World::new();
    let (client, other) = (w.client("a"), w.client("b"));
    let held = other.acquire("3").await.unwrap();
    let started = tokio::time::Instant::now();
    let waiting = client.all(["1", "2", "3"]).ttl(ms(900)).wait_at_most(ms(350));
    let waiting = tokio::spawn(waiting.acquire());
    tokio::time::sleep(ms(50)).await;
    // Told with the renewal at 300 ms; then the answer about the other comes at 500 ms at the earliest.
    w.server.steal(&LockName::new("1").unwrap(), ms(60_000)).unwrap();
    w.server.inject(Operation::Release, Delivery::Lost);
    let kind = waiting.await.unwrap().unwrap_err().kind();
    assert_eq!(kind, ErrorKind::Timeout);
    assert!(started.elapsed() >= ms(350) && started.elapsed() < ms(400), "{:?}", started.elapsed());
    drained(&client).await;
    assert!(other.try_acquire("2").await.unwrap().is_some(), "what was not given back in time is given back");
    held.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn two_that_want_the_same_do_not_wait_for_each_other() {
    let w = World::new();
    let (a, b) = (w.client("a"), w.client("b"));
    for _ in 0..50 {
        let (one, two) = (a.all(["x", "y"]), b.all(["y", "x"]));
        let work = |all: fencelock_core::SeveralLocks| async move {
            let all = all.acquire().await.unwrap();
            tokio::time::sleep(ms(3)).await;
            all.release().await.unwrap();
        };
        tokio::join!(work(one), work(two));
    }
}

#[tokio::test(start_paused = true)]
async fn cut_at_every_await_point() {
    let w = World::new();
    let (client, other) = (w.client("a"), w.client("b"));
    for polls in 0..200 {
        for _ in 0..3 {
            w.server.inject(Operation::Acquire, Delivery::Late(ms(5)));
        }
        let (mut left, mut asked) = (polls, Box::pin(client.all(["x", "y", "z"]).acquire()));
        let done = poll_fn(|cx| {
            if left == 0 {
                return Poll::Ready(None);
            }
            left -= 1;
            match asked.as_mut().poll(cx) {
                Poll::Ready(output) => Poll::Ready(Some(output)),
                Poll::Pending if left == 0 => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        })
        .await;
        drop(asked);
        let ended = done.is_some();
        if let Some(all) = done {
            all.unwrap().release().await.unwrap();
        }
        drained(&client).await;
        assert_eq!(client.held(), 0);
        other.all(["x", "y", "z"]).try_acquire().await.unwrap().expect("free at once").release().await.unwrap();
        if ended {
            assert!(polls > 3, "cut between the names as well");
            assert_eq!(w.server.entries(), 0);
            return;
        }
    }
    panic!("never completed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_at_a_thousand_random_instants() {
    let (server, client) = real();
    let (a, b) = (client(), client());
    let mut tasks = tokio::task::JoinSet::new();
    for lane in 0..4_usize {
        let (client, server) = (if lane % 2 == 0 { a.clone() } else { b.clone() }, server.clone());
        tasks.spawn(async move {
            let mut done = 0;
            for round in 0..250_usize {
                if round % 2 == 0 {
                    let late = Duration::from_micros(fastrand::u64(0..600));
                    server.inject(Operation::Acquire, Delivery::Late(late));
                }
                let names = ["p", "q", "r", "s"].into_iter().skip((round + lane) % 3);
                let all = client.all(names);
                let work = async {
                    if round % 5 == 0 {
                        return all.try_acquire().await.map(drop);
                    }
                    all.acquire().await?.release().await
                };
                let limit = Duration::from_micros(fastrand::u64(0..8_000));
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
    assert_eq!((a.held(), b.held(), server.entries()), (0, 0, 0));
}
