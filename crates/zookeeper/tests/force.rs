//! A forced release keeps the lock closed for the hold's lock delay.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, missing_docs, reason = "a test")]

mod common;

use common::{SLACK, client, engine, in_line, nodes, raw, until, within};
use fencelock_core::{Admin, Attempt, DistributedLock, LockName, LossReason, Terms};
use fencelock_lab::{Ensemble, ZooKeeper, ZooKeeperSettings};
use std::time::{Duration, Instant};

const DELAY: Duration = Duration::from_secs(3);

fn url(server: &ZooKeeper) -> String {
    format!("zookeeper://{}?session=10s&request_timeout=2s", server.address())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_with_a_lock_delay_leaves_the_lock_closed() {
    let server = ZooKeeper::start().unwrap();
    let raw = raw(&server.address().to_string()).await;
    let (holder, other) = (client(&url(&server)).await, client(&url(&server)).await);
    let delayed = holder.named("forced").ttl(Duration::from_secs(1)).lock_delay(DELAY);
    let guard = delayed.acquire().await.unwrap();
    let id = guard.claim_id();
    assert_eq!(other.inspect("forced").await.unwrap().unwrap().claim, Some(id));
    assert_eq!(other.list("").await.unwrap()[0].1.claim, Some(id));
    let first = in_line(&raw, &other, "forced").await;
    let second = in_line(&raw, &holder, "forced").await;

    let forced = Instant::now();
    assert!(other.force_release("forced").await.unwrap());
    assert!(forced.elapsed() < DELAY, "it waited: {:?}", forced.elapsed());
    assert_eq!(within("the loss is told", SLACK, guard.lost()).await, LossReason::Revoked);
    let told = forced.elapsed();
    assert!(other.inspect("forced").await.unwrap().is_none());
    assert!(other.list("").await.unwrap().is_empty());
    assert!(!other.force_release("forced").await.unwrap(), "nobody holds it");

    let direct = engine(&url(&server)).await.unwrap();
    let terms = Terms::new(LockName::new("forced").unwrap(), Duration::from_secs(1));
    match direct.try_acquire(&terms.mint().unwrap()).await.unwrap() {
        Attempt::Contended { retry_after, holder, .. } => {
            assert!(retry_after.is_some_and(|left| left <= DELAY) && holder.is_none(), "{retry_after:?}, {holder:?}");
        }
        other => assert!(forced.elapsed() >= DELAY, "granted: {other:?}"),
    }
    let next = within("the waiter is served", SLACK, first).await.unwrap().unwrap();
    println!("told after {told:?}, granted after {:?}", forced.elapsed());
    assert!(forced.elapsed() >= DELAY, "granted after {:?}", forced.elapsed());
    assert!(next.token() > guard.token());
    assert!(!second.is_finished(), "the order was not kept");
    next.release().await.unwrap();
    within("the one behind", SLACK, second).await.unwrap().unwrap().release().await.unwrap();
    until("nothing is left", SLACK, || async { nodes(&raw, "forced").await.is_empty() }).await;
}

/// Whoever forced it is gone at once, and so is everybody else: the servers open it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_closed_lock_needs_nobody_alive() {
    // The least time that a session gets is 5 s, longer than the delay.
    let settings = ZooKeeperSettings::default().with_line("minSessionTimeout=5000");
    let server = ZooKeeper::start_with(&settings).unwrap();
    let raw = raw(&server.address().to_string()).await;
    let holder = client(&url(&server)).await;
    let guard = holder.named("forced").ttl(Duration::from_secs(1)).lock_delay(DELAY).acquire().await.unwrap();
    let address = url(&server);
    let forced = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { client(&address).await.force_release("forced").await.unwrap() })
    });
    assert!(tokio::task::spawn_blocking(move || forced.join().unwrap()).await.unwrap());
    let freed = Instant::now();
    assert_eq!(within("the loss is told", SLACK, guard.lost()).await, LossReason::Revoked);
    drop(guard);
    assert_eq!(nodes(&raw, "forced").await.len(), 1, "closed");
    until("the servers open it", SLACK, || async { nodes(&raw, "forced").await.is_empty() }).await;
    println!("open again {:?} after it was forced", freed.elapsed());
    assert!(freed.elapsed() >= DELAY / 2, "open again after {:?}", freed.elapsed());
}

/// A waiter need not wait for the servers, whose shortest session may be longer than the delay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_opens_it_on_time() {
    let settings = ZooKeeperSettings::default().with_line("minSessionTimeout=15000");
    let server = ZooKeeper::start_with(&settings).unwrap();
    let raw = raw(&server.address().to_string()).await;
    let (holder, other) = (client(&url(&server)).await, client(&url(&server)).await);
    let guard = holder.named("forced").ttl(Duration::from_secs(1)).lock_delay(DELAY).acquire().await.unwrap();
    let waiting = in_line(&raw, &other, "forced").await;
    let forced = Instant::now();
    {
        let forcing = engine(&url(&server)).await.unwrap();
        assert!(forcing.force_release(&LockName::new("forced").unwrap()).await.unwrap());
    }
    let next = within("the waiter is served", Duration::from_secs(10), waiting).await.unwrap().unwrap();
    println!("granted after {:?}", forced.elapsed());
    assert!(forced.elapsed() >= DELAY && next.token() > guard.token());
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_without_one_is_freed_at_once() {
    let ensemble = Ensemble::start(3).unwrap();
    let url = format!("zookeeper://{}?session=6s", ensemble.addresses());
    let (one, two) = (client(&url).await, client(&url).await);
    let guard = one.acquire("forced").await.unwrap();
    assert!(two.force_release("forced").await.unwrap());
    let next = within("freed", SLACK, two.acquire("forced")).await.unwrap();
    assert!(next.token() > guard.token());
    assert_eq!(within("the loss is told", SLACK, guard.lost()).await, LossReason::Revoked);
    assert!(!one.force_release("nobody").await.unwrap());
}

/// Holders that force each other out without end, some with a delay: never two at once, tokens grow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_that_force_and_wait_are_all_served() {
    let server = ZooKeeper::start().unwrap();
    let mut waiting = tokio::task::JoinSet::new();
    for place in 0..8_u64 {
        let client = client(&url(&server)).await;
        waiting.spawn(async move {
            let delay = Duration::from_millis(100 * (place % 3));
            let lock = client.named("forced").ttl(Duration::from_secs(1)).lock_delay(delay);
            let mut tokens = Vec::new();
            for _ in 0..3 {
                let guard = lock.acquire().await.unwrap();
                tokens.push(guard.token());
                if place % 2 == 0 {
                    client.force_release("forced").await.unwrap();
                }
                drop(guard);
            }
            tokens
        });
    }
    let mut tokens = Vec::new();
    while let Some(served) = within("everybody is served", SLACK * 2, waiting.join_next()).await {
        tokens.extend(served.unwrap());
    }
    tokens.sort();
    tokens.dedup();
    assert_eq!(tokens.len(), 24);
}
