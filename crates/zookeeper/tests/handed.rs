//! Waiters of one client: a release hands the lock to the next in its own step, and what befalls a node otherwise
//! wakes whoever is behind it all the same.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs, reason = "a test")]

mod common;

use common::{client, in_line, nodes, raw, until, within};
use fencelock_core::{LockGuard, Result};
use fencelock_lab::ZooKeeper;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::{JoinHandle, JoinSet};

/// Well below the time after which a waiter looks by itself, and generous for everything else.
const SOON: Duration = Duration::from_secs(15);

/// Sees that nobody else is inside, and that tokens grow.
#[derive(Default)]
struct Inside(AtomicBool, AtomicU64);

impl Inside {
    fn pass(&self, guard: &LockGuard) {
        assert!(!self.0.swap(true, Ordering::SeqCst), "two at once");
        let token = guard.token().get();
        assert!(self.1.swap(token, Ordering::SeqCst) < token, "a token did not grow");
        self.0.store(false, Ordering::SeqCst);
    }
}

fn received(server: &ZooKeeper) -> f64 {
    let answer = server.ask("srvr").unwrap();
    answer.lines().find_map(|line| line.strip_prefix("Received: ")?.trim().parse().ok()).unwrap()
}

/// 8 tasks of one client on one name: the creation, the listing and the deletion, and nothing else is sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handover_in_one_client_is_a_release_and_an_acquire() {
    const EACH: u32 = 50;
    let server = ZooKeeper::start().unwrap();
    let client = client(&format!("zookeeper://{}?session=20s", server.address())).await;
    client.acquire("a").await.unwrap().release().await.unwrap();
    let (before, inside) = (received(&server), Arc::new(Inside::default()));
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let (lock, inside) = (client.named("a"), Arc::clone(&inside));
        tasks.spawn(async move {
            for _ in 0..EACH {
                let guard = lock.acquire().await.unwrap();
                inside.pass(&guard);
                guard.release().await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    let each = (received(&server) - before) / f64::from(8 * EACH);
    println!("packets a handover in one client: {each:.2}");
    assert!(each < 3.6, "{each:.2} packets a handover");
}

/// The holder's node is taken by an operator, then a waiter's and the holder's vanish.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_vanish_wake_those_behind_them() {
    let server = ZooKeeper::start().unwrap();
    let url = format!("zookeeper://{}?session=20s", server.address());
    let raw = raw(&server.address().to_string()).await;
    let (one, operator) = (client(&url).await, client(&url).await);
    let guard = one.acquire("a").await.unwrap();
    let (first, second) = (in_line(&raw, &one, "a").await, in_line(&raw, &one, "a").await);
    assert!(operator.force_release("a").await.unwrap());
    let guard_of_first = within("the first is woken", SOON, first).await.unwrap().unwrap();
    guard_of_first.release().await.unwrap();
    // The line is there from now on: what the second held was waited for.
    let guard_of_second = within("the second is woken", SOON, second).await.unwrap().unwrap();
    drop(guard);
    let third = in_line(&raw, &one, "a").await;
    let fourth = in_line(&raw, &one, "a").await;
    let mut all = nodes(&raw, "a").await;
    all.sort_by_key(|node| node[33..].to_owned());
    raw.delete(&format!("/fencelock/a/{}", all[1]), None).await.unwrap();
    guard_of_second.release().await.unwrap();
    // The third finds that out when its turn comes, and queues anew, behind the other.
    let guard_of_fourth = within("the fourth is woken", SOON, fourth).await.unwrap().unwrap();
    until("the third has queued anew", SOON, || async { nodes(&raw, "a").await.len() == 2 }).await;
    let fifth = in_line(&raw, &one, "a").await;
    // The hold's own goes last, so that nobody is granted what is taken from it next.
    let mut all = nodes(&raw, "a").await;
    all.sort_by_key(|node| node[33..].to_owned());
    for node in all.iter().rev() {
        raw.delete(&format!("/fencelock/a/{node}"), None).await.unwrap();
    }
    within("the hold is lost", SOON, guard_of_fourth.lost()).await;
    // In the order in which they queued anew, whichever that is.
    let serve = |waiting: JoinHandle<Result<LockGuard>>| async { waiting.await.unwrap().unwrap().release().await };
    let served = within("all are served", SOON, async { tokio::join!(serve(third), serve(fifth)) }).await;
    served.0.and(served.1).unwrap();
    assert!(nodes(&raw, "a").await.is_empty());
}

/// Behind another client's hold, and the node of the one in the middle vanishes: its client does not know.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_vanishes_among_those_who_wait_for_another_client_stops_nobody() {
    let server = ZooKeeper::start().unwrap();
    let url = format!("zookeeper://{}?session=20s", server.address());
    let raw = raw(&server.address().to_string()).await;
    let (one, other) = (client(&url).await, client(&url).await);
    let guard = other.acquire("a").await.unwrap();
    let first = in_line(&raw, &one, "a").await;
    let (second, third) = (in_line(&raw, &one, "a").await, in_line(&raw, &one, "a").await);
    let mut all = nodes(&raw, "a").await;
    all.sort_by_key(|node| node[33..].to_owned());
    raw.delete(&format!("/fencelock/a/{}", all[2]), None).await.unwrap();
    guard.release().await.unwrap();
    within("the first is woken", SOON, first).await.unwrap().unwrap().release().await.unwrap();
    let guard_of_third = within("the third is woken", SOON, third).await.unwrap().unwrap();
    // The second queues anew, behind it.
    until("the second has queued anew", SOON, || async { nodes(&raw, "a").await.len() == 2 }).await;
    assert!(!second.is_finished());
    guard_of_third.release().await.unwrap();
    within("the second is served", SOON, second).await.unwrap().unwrap().release().await.unwrap();
}

/// Waiters who give up at any moment leave nobody behind them asleep.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_give_up_wake_those_behind_them() {
    let server = ZooKeeper::start().unwrap();
    let client = client(&format!("zookeeper://{}?session=20s", server.address())).await;
    let inside = Arc::new(Inside::default());
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for who in 0..8_u64 {
        let (lock, inside) = (client.named("a"), Arc::clone(&inside));
        tasks.spawn(async move {
            let mut held = 0;
            for round in 0..40_u64 {
                let patience = Duration::from_micros((who * 7_919 + round * 104_729) % 40_000);
                if let Ok(guard) = tokio::time::timeout(patience, lock.acquire()).await {
                    let guard = guard.unwrap();
                    inside.pass(&guard);
                    guard.release().await.unwrap();
                    held += 1;
                }
            }
            held
        });
    }
    let held: u32 = tasks.join_all().await.into_iter().sum();
    println!("{held} of 320 were granted, in {:?}", began.elapsed());
    within("nobody stands in the way", SOON, client.acquire("a")).await.unwrap().release().await.unwrap();
}
