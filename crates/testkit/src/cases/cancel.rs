//! Calls that are given up leave nothing behind.

use crate::failure::{Expect, Outcome, ensure};
use crate::stage::{SLACK, Stage, drained, is_free, is_taken, take};
use fencelock_core::{LockClient, LockGuard, Result};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

/// A first acquire with more await points than this would be odd.
const POLLS: usize = 200;

/// Polls the future so many times, when it is woken, then leaves it alone for a while and drops it.
async fn polled<F: Future>(polls: usize, dwell: Duration, future: F) -> Option<F::Output> {
    let mut future = Box::pin(future);
    let mut left = polls;
    let ended = poll_fn(|cx| {
        left = left.saturating_sub(1);
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    });
    // A waiter that is not woken has no further await point to be dropped at.
    let output = tokio::time::timeout(Duration::from_millis(700), ended).await.ok().flatten();
    if output.is_none() {
        tokio::time::sleep(dwell).await;
    }
    output
}

/// Drops the future after so long.
pub(super) async fn cut<F: Future>(after: Duration, future: F) -> Option<F::Output> {
    // A thread's sleep: the runtime's timers round to whole milliseconds, in which an acquire can be over.
    let cut = tokio::task::spawn_blocking(move || std::thread::sleep(after));
    tokio::select! {
        ended = future => Some(ended),
        _ = cut => None,
    }
}

/// Some time, in every second round short enough that a quick service is still answering.
pub(super) fn some_time(round: u32, longest: Duration) -> Duration {
    let longest = if round.is_multiple_of(2) { longest } else { longest.min(Duration::from_millis(1)) };
    longest.mul_f64(fastrand::f64())
}

type Asked = Pin<Box<dyn Future<Output = Result<Option<LockGuard>>> + Send>>;

fn acquire(client: &LockClient, name: &str) -> Asked {
    let lock = client.named(name);
    Box::pin(async move { lock.acquire().await.map(Some) })
}

fn try_acquire(client: &LockClient, name: &str) -> Asked {
    let lock = client.named(name);
    Box::pin(async move { lock.try_acquire().await })
}

pub(crate) async fn cancelled_at_every_await_point(stage: Stage) -> Outcome {
    let other = stage.client().await?;
    for (verb, ask) in [("acquire", acquire as fn(&LockClient, &str) -> Asked), ("try_acquire", try_acquire)] {
        for dwell in [Duration::ZERO, Duration::from_millis(5)] {
            // A client that has never asked anything, so that its first connection is cancelled too.
            let client = stage.client().await?;
            let name = stage.name(verb);
            let mut polls = 1;
            loop {
                let ended = polled(polls, dwell, ask(&client, &name)).await;
                if let Some(outcome) = ended {
                    let Some(guard) = outcome? else {
                        return Err(crate::Failure::new(format!(
                            "{verb} found the lock held by a call that was dropped"
                        )));
                    };
                    guard.release().await?;
                    break;
                }
                drained(&client).await?;
                is_free(&other, &name).await?;
                polls += 1;
                ensure!(polls <= POLLS, "{verb} had not ended after {POLLS} polls");
            }
            drained(&client).await?;
            is_free(&other, &name).await?;
        }
    }
    Ok(())
}

/// A hold that does not run out while others give up, whatever a loaded machine makes of its renewals.
async fn hold(stage: &Stage, holder: &LockClient, name: &str) -> Outcome<LockGuard> {
    let lock = holder.named(name).ttl(stage.long_ttl());
    lock.try_acquire().await?.expect_that(format_args!("{name} should be free at once, and is not"))
}

pub(crate) async fn waiter_cancelled_at_every_await_point(stage: Stage) -> Outcome {
    let name = stage.name("lock");
    let (holder, waiter, other) = (stage.client().await?, stage.client().await?, stage.client().await?);
    let guard = hold(&stage, &holder, &name).await?;
    for polls in 1..=10 {
        let ended = polled(polls, Duration::ZERO, acquire(&waiter, &name)).await;
        if let Some(outcome) = ended {
            let how = outcome.map(|guard| guard.map(|guard| guard.token()));
            return Err(crate::Failure::new(format!("a waiter ended while another held: {how:?}")));
        }
        drained(&waiter).await?;
    }
    is_taken(&other, &name).await?;
    ensure!(guard.is_held(), "the holder lost the lock to waiters that gave up");
    guard.release().await?;
    is_free(&other, &name).await
}

pub(crate) async fn cancelled_at_random_instants(stage: Stage) -> Outcome {
    let name = stage.name("lock");
    let (holder, waiter, other) = (stage.client().await?, stage.client().await?, stage.client().await?);
    for round in 0..200 {
        let held = if round % 2 == 0 { Some(hold(&stage, &holder, &name).await?) } else { None };
        let longest = if round % 4 < 2 { 500 } else { 6_000 };
        let within = Duration::from_micros(fastrand::u64(0..longest));
        let freed_after = Duration::from_micros(fastrand::u64(0..6_000));
        let wait = cut(within, acquire(&waiter, &name));
        let free = async {
            if let Some(guard) = held {
                tokio::time::sleep(freed_after).await;
                guard.release().await?;
            }
            Outcome::Ok(())
        };
        let (waited, freed) = tokio::join!(wait, free);
        freed?;
        if let Some(guard) = waited.unwrap_or(Ok(None))? {
            guard.release().await?;
        }
        drained(&waiter).await?;
        is_free(&other, &name).await?;
    }
    Ok(())
}

pub(crate) async fn waiters_that_give_up_leave_nothing(stage: Stage) -> Outcome {
    let name = stage.name("lock");
    let (holder, other) = (stage.client().await?, stage.client().await?);
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(stage.client().await?);
    }
    let guard = take(&holder, &name).await?;
    let mut waits = tokio::task::JoinSet::new();
    for (at, client) in clients.iter().enumerate() {
        let patient = client.named(&name).wait_at_most(Duration::from_millis(300));
        waits.spawn(async move {
            if at % 2 == 0 {
                // Given up by its own limit.
                patient.acquire().await.is_err()
            } else {
                // Dropped.
                tokio::time::timeout(Duration::from_millis(200), patient.wait_forever().acquire()).await.is_err()
            }
        });
    }
    while let Some(gave_up) = waits.join_next().await {
        ensure!(gave_up?, "a waiter was granted the lock while another held");
    }
    for client in &clients {
        drained(client).await?;
    }
    guard.release().await?;
    // Nobody is in the queue any more.
    is_free(&other, &name).await?;
    is_free(&holder, &name).await
}

pub(crate) async fn a_caller_that_does_not_poll_holds_nobody_up(stage: Stage) -> Outcome {
    let name = stage.name("lock");
    let (holder, neglecting, other) = (stage.client().await?, stage.client().await?, stage.client().await?);
    let guard = take(&holder, &name).await?;
    let mut neglected = acquire(&neglecting, &name);
    let first = poll_fn(|cx| Poll::Ready(neglected.as_mut().poll(cx))).await;
    ensure!(first.is_pending(), "a wait ended at once while another held");
    // Time to take its place, wherever it queues.
    tokio::time::sleep(Duration::from_millis(300)).await;
    guard.release().await?;
    let started = Instant::now();
    let served = other.acquire(&name).await?;
    let (waited, most) = (started.elapsed(), stage.ttl() + SLACK);
    ensure!(waited <= most, "a lock that nobody took was kept for {waited:?}");
    served.release().await?;
    let late = neglected.await?.expect_that("a wait that is taken up again should end with the lock")?;
    ensure!(late.is_held(), "what had run out unseen was handed out");
    late.release().await?;
    drained(&neglecting).await?;
    is_free(&other, &name).await
}

pub(crate) async fn contended_try_leaves_no_trace(stage: Stage) -> Outcome {
    let name = stage.name("lock");
    let (a, b, c) = (stage.client().await?, stage.client().await?, stage.client().await?);
    let guard = take(&a, &name).await?;
    for _ in 0..5 {
        is_taken(&b, &name).await?;
        ensure!(b.held() == 0, "a contended try counts as held");
    }
    let shown = c.inspect(&name).await?.map(|holder| holder.token);
    ensure!(shown == Some(guard.token()), "after contended tries inspect shows {shown:?}");
    guard.release().await?;
    let shown = c.inspect(&name).await?;
    ensure!(shown.is_none(), "freed after contended tries, and held: {shown:?}");
    is_free(&c, &name).await?;
    is_free(&a, &name).await?;
    drained(&b).await
}
