//! Waiters of one client: a release hands the lock to the next in its own step, and what befalls a place otherwise
//! wakes whoever is behind it all the same.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    missing_docs,
    reason = "a test"
)]

mod common;

use common::{History, LONG, client, keys, plain, queued};
use fencelock_core::{LockClient, LockGuard};
use fencelock_etcd::etcd_client::{DeleteOptions, GetOptions, KeyValue};
use fencelock_lab::Etcd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio::task::{JoinHandle, JoinSet};

/// Well below the time after which a waiter looks by itself, and generous for everything else.
const SOON: Duration = Duration::from_secs(15);

async fn soon<T>(work: impl Future<Output = T>, else_say: &str) -> T {
    tokio::time::timeout(SOON, work).await.unwrap_or_else(|_| panic!("{else_say}"))
}

/// 8 tasks of one client on one name: a handover is a release and an acquire, and nothing else is sent.
#[tokio::test(flavor = "multi_thread")]
async fn a_handover_in_one_client_is_a_release_and_an_acquire() {
    const MESSAGES: &str = "grpc_server_msg_received_total";
    const EACH: u32 = 50;
    let etcd = Etcd::start().unwrap();
    let client = client(&etcd).await;
    client.acquire("warm").await.unwrap().release().await.unwrap();
    let before = etcd.metric(0, MESSAGES).unwrap();
    let (history, done) = (History::default(), Arc::new(AtomicU32::new(0)));
    let mut tasks = JoinSet::new();
    for who in 0..8 {
        let (lock, history, done) = (client.named("a").ttl(LONG), history.clone(), Arc::clone(&done));
        tasks.spawn(async move {
            for _ in 0..EACH {
                let guard = lock.acquire().await.unwrap();
                history.hold(who, &guard, std::future::ready(())).await;
                guard.release().await.unwrap();
                done.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    tasks.join_all().await;
    let sent = etcd.metric(0, MESSAGES).unwrap() - before;
    assert_eq!(done.load(Ordering::SeqCst), 8 * EACH);
    history.checked();
    let each = sent / f64::from(8 * EACH);
    eprintln!("messages a handover in one client: {each:.2}");
    assert!(each < 2.5, "{each:.2} messages a handover");
}

/// A holder, and two of the same client behind it.
async fn line(etcd: &Etcd, client: &LockClient) -> (LockGuard, [JoinHandle<Instant>; 2]) {
    let guard = client.named("a").ttl(LONG).acquire().await.unwrap();
    let waiter = || {
        let lock = client.named("a").ttl(LONG);
        tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            let granted = Instant::now();
            guard.release().await.unwrap();
            granted
        })
    };
    let first = waiter();
    queued(etcd, "a", 2).await;
    let second = waiter();
    queued(etcd, "a", 3).await;
    (guard, [first, second])
}

async fn both_soon(waiters: [JoinHandle<Instant>; 2]) {
    let [first, second] = waiters;
    let first = soon(first, "the first was not woken").await.unwrap();
    let second = soon(second, "the second was not woken").await.unwrap();
    assert!(first < second);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_that_is_taken_away_wakes_the_next_of_its_own_client() {
    let etcd = Etcd::start().unwrap();
    let (one, operator) = (client(&etcd).await, client(&etcd).await);
    let (guard, waiters) = line(&etcd, &one).await;
    assert!(operator.force_release("a").await.unwrap());
    both_soon(waiters).await;
    assert!(!guard.is_held());
}

/// A forced release leaves the place of the hold closed for its lock delay.
#[tokio::test(flavor = "multi_thread")]
async fn a_closed_place_wakes_the_next_of_its_own_client() {
    let etcd = Etcd::start().unwrap();
    let (one, operator) = (client(&etcd).await, client(&etcd).await);
    let delay = Duration::from_secs(2);
    let guard = one.named("a").ttl(LONG).lock_delay(delay).acquire().await.unwrap();
    let lock = one.named("a").ttl(LONG);
    let early = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await.unwrap().release().await.unwrap() }
    });
    queued(&etcd, "a", 2).await;
    let forced = Instant::now();
    assert!(operator.force_release("a").await.unwrap());
    tokio::time::timeout(SOON, guard.lost()).await.unwrap();
    // Behind whoever was there, and one who comes to the closed place when its hold is known to be lost.
    let late = tokio::spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() });
    soon(early, "the early one was not woken").await.unwrap();
    assert!(forced.elapsed() >= delay, "granted while it was closed");
    soon(late, "the late one was not woken").await.unwrap();
}

/// Places that are deleted behind everybody's back: the holder's, and that of a waiter between two others.
#[tokio::test(flavor = "multi_thread")]
async fn places_that_vanish_wake_those_behind_them() {
    let etcd = Etcd::start().unwrap();
    let client = client(&etcd).await;
    let (guard, [first, second]) = line(&etcd, &client).await;
    let own = guard.evidence().get("key").unwrap().to_owned();
    let oldest_but_one = {
        let mut all =
            plain(&etcd).await.get("fencelock/l/a/", Some(GetOptions::new().with_prefix())).await.unwrap().take_kvs();
        all.sort_by_key(KeyValue::create_revision);
        all[1].key_str().unwrap().to_owned()
    };
    plain(&etcd).await.delete(oldest_but_one.as_str(), None).await.unwrap();
    // It finds that out when its turn comes, and queues anew, behind the other.
    guard.release().await.unwrap();
    let (second, first) = (
        soon(second, "the second was not woken").await.unwrap(),
        soon(first, "the first was not woken").await.unwrap(),
    );
    assert!(second < first);
    let (guard, waiters) = line(&etcd, &client).await;
    assert_ne!(guard.evidence().get("key").unwrap(), own);
    plain(&etcd).await.delete("fencelock/l/a/", Some(DeleteOptions::new().with_prefix())).await.unwrap();
    let [first, second] = waiters;
    soon(first, "the first was not woken").await.unwrap();
    soon(second, "the second was not woken").await.unwrap();
    assert_eq!(keys(&etcd, "fencelock/l/a/").await, [""; 0]);
    assert!(!guard.is_held());
}

/// Waiters who give up at any moment leave nobody behind them asleep.
#[tokio::test(flavor = "multi_thread")]
async fn those_who_give_up_wake_those_behind_them() {
    let etcd = Etcd::start().unwrap();
    let client = client(&etcd).await;
    let history = History::default();
    let mut tasks = JoinSet::new();
    for who in 0..8_usize {
        let (lock, history) = (client.named("a").ttl(LONG), history.clone());
        tasks.spawn(async move {
            let mut held = 0;
            for round in 0..40_u64 {
                let patience = Duration::from_micros((who as u64 * 7_919 + round * 104_729) % 40_000);
                if let Ok(guard) = tokio::time::timeout(patience, lock.acquire()).await {
                    let guard = guard.unwrap();
                    history.hold(who, &guard, std::future::ready(())).await;
                    guard.release().await.unwrap();
                    held += 1;
                }
            }
            held
        });
    }
    let held: u32 = tasks.join_all().await.into_iter().sum();
    history.checked();
    eprintln!("{held} of 320 were granted");
    let last = soon(client.acquire("a"), "somebody stands in the way").await.unwrap();
    last.release().await.unwrap();
    client.close().await;
    assert_eq!(keys(&etcd, "fencelock/l/a/").await, [""; 0]);
}

/// Behind another client's hold, and the place of the one in the middle is deleted: its client does not know.
#[tokio::test(flavor = "multi_thread")]
async fn a_place_that_vanishes_among_those_who_wait_for_another_client_stops_nobody() {
    let etcd = Etcd::start().unwrap();
    let (other, one) = (client(&etcd).await, client(&etcd).await);
    let guard = other.named("a").ttl(LONG).acquire().await.unwrap();
    let done = Arc::new(AtomicU32::new(0));
    let mut waiters = Vec::new();
    for behind in 2..5 {
        let (lock, done) = (one.named("a").ttl(LONG), Arc::clone(&done));
        waiters.push(tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            let turn = done.fetch_add(1, Ordering::SeqCst);
            guard.release().await.unwrap();
            turn
        }));
        queued(&etcd, "a", behind).await;
    }
    let mut all =
        plain(&etcd).await.get("fencelock/l/a/", Some(GetOptions::new().with_prefix())).await.unwrap().take_kvs();
    all.sort_by_key(KeyValue::create_revision);
    plain(&etcd).await.delete(all[2].key(), None).await.unwrap();
    guard.release().await.unwrap();
    let mut turns = Vec::new();
    for waiter in waiters {
        turns.push(soon(waiter, "one was not woken").await.unwrap());
    }
    assert_eq!(turns, [0, 2, 1], "the one in the middle queues anew");
}
