//! One holder at a time, in which order, and with which token.

use super::contest::Contest;
use crate::failure::{Expect, Outcome, ensure};
use crate::stage::{SLACK, Stage, is_free, is_taken, take, within};
use fencelock_core::{Capability, LockClient, LockGuard, Result};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// So many that they are not served in their order by chance.
const WAITERS: usize = 7;

pub(crate) async fn excludes_across_clients(stage: Stage) -> Outcome {
    let name = stage.name("lock");
    let (a, b) = (stage.client().await?, stage.client().await?);
    let guard = take(&a, &name).await?;
    for _ in 0..3 {
        is_taken(&b, &name).await?;
        is_taken(&a, &name).await?;
    }
    ensure!(guard.is_held(), "the holder should still hold");
    guard.release().await?;
    let second = take(&b, &name).await?;
    is_taken(&a, &name).await?;
    second.release().await?;
    is_free(&a, &name).await
}

pub(crate) async fn hands_over_and_the_token_grows(stage: Stage) -> Outcome {
    let name = stage.name("lock");
    let clients = [stage.client().await?, stage.client().await?];
    let mut guard = take(&stage.client().await?, &name).await?;
    for (turn, client) in (0..50).zip(clients.iter().cycle()) {
        let waiting = client.named(&name);
        let mut next = Waiting::new(async move { waiting.acquire().await });
        ensure!(!next.begin().await?, "handover {turn}: granted while another holds");
        let old = guard.token();
        guard.release().await?;
        guard = within("a handover", SLACK * 2, next).await??;
        ensure!(guard.token() > old, "handover {turn}: token {} came after {old}", guard.token());
    }
    Ok(guard.release().await?)
}

/// 8 clients add 25 each to a number that only the lock protects.
pub(crate) async fn counter_under_contention(stage: Stage) -> Outcome {
    let name = stage.name("counter");
    let contest = Arc::new(Contest::among(8));
    let mut locks = Vec::new();
    for _ in 0..8 {
        locks.push(stage.client().await?.named(&name).ttl(stage.long_ttl()));
    }
    let mut clients = JoinSet::new();
    for lock in locks {
        let contest = Arc::clone(&contest);
        clients.spawn(async move {
            for turn in 0..25 {
                contest.turn(turn, &lock).await?.release().await?;
            }
            Outcome::Ok(())
        });
    }
    while let Some(client) = clients.join_next().await {
        client??;
    }
    contest.came_to(200)
}

pub(crate) async fn every_waiter_is_served_in_order_where_promised(stage: Stage) -> Outcome {
    let fifo = stage.promises(
        Capability::Fifo,
        "waiters of different clients are served in the order in which they came",
        "waiters of different clients are all served, in any order",
    );
    let mut clients = Vec::new();
    for _ in 0..WAITERS {
        clients.push(stage.client().await?);
    }
    let order = order_served(&stage, &clients, fifo).await?;
    ensure!(!fifo || order.is_sorted(), "first come is not first served: the order was {order:?}");
    Ok(())
}

pub(crate) async fn waiters_of_one_client_are_served_in_order(stage: Stage) -> Outcome {
    let client = stage.client().await?;
    let clients = vec![client; WAITERS];
    let order = order_served(&stage, &clients, false).await?;
    ensure!(order.is_sorted(), "waiters of one client were served in the order {order:?}");
    Ok(())
}

/// How many the service shows to wait, where it knows.
async fn waiting_at(client: &LockClient, name: &str) -> Outcome<Option<usize>> {
    let waiters = client.inspect(name).await?.and_then(|shown| shown.waiters);
    Ok(waiters.map(|waiters| usize::try_from(waiters).unwrap_or(usize::MAX)))
}

/// Lets clients queue one after the other, frees the lock, and tells who got it when. Each comes when the one before
/// is `shown` to wait, where the service shows that.
async fn order_served(stage: &Stage, clients: &[LockClient], shown: bool) -> Outcome<Vec<usize>> {
    let (name, looks) = (stage.name("queue"), stage.client().await?);
    let guard = take(&stage.client().await?, &name).await?;
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = JoinSet::new();
    for (place, client) in clients.iter().enumerate() {
        let lock = client.named(&name);
        let mut waiting = Waiting::new(async move { lock.acquire().await });
        ensure!(!waiting.begin().await?, "granted while another holds");
        let served = Arc::clone(&served);
        waiters.spawn(async move {
            let guard = waiting.await?;
            served.lock().unwrap_or_else(PoisonError::into_inner).push(place);
            guard.release().await
        });
        // Time to reach the server before the next one comes.
        tokio::time::sleep(Duration::from_millis(40)).await;
        if shown && waiting_at(&looks, &name).await?.is_some() {
            let started = Instant::now();
            while waiting_at(&looks, &name).await? <= Some(place) {
                ensure!(started.elapsed() < SLACK, "{} should be shown to wait, and fewer are", place + 1);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
    guard.release().await?;
    while let Some(waiter) = within("every waiter is served", SLACK * 4, waiters.join_next()).await? {
        waiter??;
    }
    let order = served.lock().unwrap_or_else(PoisonError::into_inner).clone();
    ensure!(order.len() == clients.len(), "{} waiters, {} served", clients.len(), order.len());
    Ok(order)
}

/// An acquire that can be begun before it is awaited.
pub(crate) struct Waiting {
    future: Pin<Box<dyn Future<Output = Result<LockGuard>> + Send>>,
}

impl Waiting {
    pub(crate) fn new(future: impl Future<Output = Result<LockGuard>> + Send + 'static) -> Self {
        Self { future: Box::pin(future) }
    }

    /// Polls it once, so that it is under way; true if it was granted by that.
    pub(crate) async fn begin(&mut self) -> Outcome<bool> {
        let first = poll_fn(|cx| Poll::Ready(self.future.as_mut().poll(cx))).await;
        match first {
            Poll::Pending => Ok(false),
            Poll::Ready(ended) => ended.map(|_| true).expect_that("an acquire that should wait"),
        }
    }
}

impl Future for Waiting {
    type Output = Result<LockGuard>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<Self::Output> {
        self.future.as_mut().poll(cx)
    }
}
