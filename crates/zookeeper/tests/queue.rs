//! Order, wake-ups, cancelled waiters, tokens: on one server.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, missing_docs, reason = "a test")]

mod common;

use common::{SLACK, client, in_line, nodes, raw, until, within};
use fencelock_lab::{ZooKeeper, ZooKeeperSettings};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn url(server: &ZooKeeper) -> String {
    format!("zookeeper://{}?session=10s&request_timeout=5s", server.address())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_come_first_served_and_cancelled_waiters_hold_nobody_up() {
    let server = ZooKeeper::start().unwrap();
    let raw = raw(&server.address().to_string()).await;
    let mut clients = Vec::new();
    for _ in 0..5 {
        clients.push(client(&url(&server)).await);
    }
    let guard = clients[0].acquire("fifo").await.unwrap();
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = Vec::new();
    for place in 0..20_usize {
        let waiting = in_line(&raw, &clients[place % 5], "fifo").await;
        let served = Arc::clone(&served);
        let stop = StopOnDrop(waiting.abort_handle());
        waiters.push(tokio::spawn(async move {
            let _stop = stop;
            let guard = waiting.await.unwrap().unwrap();
            served.lock().unwrap().push((place, guard.token()));
            guard.release().await.unwrap();
        }));
    }
    // The first, and two in a row.
    let cancelled = [0, 7, 8];
    for place in cancelled {
        waiters[place].abort();
    }
    until("the cancelled have gone", SLACK, || async { nodes(&raw, "fifo").await.len() == 18 }).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    for (place, waiter) in waiters.into_iter().enumerate() {
        let ended = within("every waiter is served", SLACK, waiter).await;
        assert_eq!(ended.is_err(), cancelled.contains(&place));
    }
    let served = served.lock().unwrap().clone();
    let order: Vec<_> = served.iter().map(|s| s.0).collect();
    let expected: Vec<_> = (0..20).filter(|place| !cancelled.contains(place)).collect();
    assert_eq!(order, expected);
    assert!(served.is_sorted_by_key(|s| s.1), "tokens do not grow: {served:?}");
    assert!(nodes(&raw, "fifo").await.is_empty());
}

struct StopOnDrop(tokio::task::AbortHandle);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_acquires_cancelled_at_random_instants_leave_nothing() {
    let server = ZooKeeper::start().unwrap();
    let raw = raw(&server.address().to_string()).await;
    let (holder, waiter, other) =
        (client(&url(&server)).await, client(&url(&server)).await, client(&url(&server)).await);
    let mut granted = 0;
    for round in 0..1_000 {
        let guard = match round % 2 {
            0 => Some(holder.acquire("cancelled").await.unwrap()),
            _ => None,
        };
        let within = Duration::from_micros(fastrand::u64(0..5_000));
        let wait = tokio::time::timeout(within, waiter.acquire("cancelled"));
        let free = async {
            if let Some(guard) = guard {
                tokio::time::sleep(Duration::from_micros(fastrand::u64(0..5_000))).await;
                guard.release().await.unwrap();
            }
        };
        let (waited, ()) = tokio::join!(wait, free);
        granted += i32::from(waited.is_ok_and(|guard| guard.is_ok()));
    }
    println!("1000 acquires, {granted} of them granted before they were cancelled");
    let guard = within("nobody is blocked", SLACK, other.acquire("cancelled")).await.unwrap();
    guard.release().await.unwrap();
    within("the undos end", SLACK, waiter.close()).await;
    assert!(nodes(&raw, "cancelled").await.is_empty(), "nodes are left while the session lives");
    drop((holder, waiter, other));
    until("the sessions' own nodes are gone", SLACK, || async {
        raw.list_children("/fencelock/%sessions").await.unwrap().is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_over_restarts_and_over_the_end_of_an_empty_parent() {
    let settings = ZooKeeperSettings::default().with_property("znode.container.checkIntervalMs=200");
    let mut server = ZooKeeper::start_with(&settings).unwrap();
    let mut last = None;
    for round in 0..3 {
        let raw = raw(&server.address().to_string()).await;
        let client = client(&url(&server)).await;
        for _ in 0..3 {
            let guard = client.acquire("tokens").await.unwrap();
            assert!(Some(guard.token()) > last, "round {round}: {} came after {last:?}", guard.token());
            last = Some(guard.token());
            guard.release().await.unwrap();
        }
        let gone = || async { raw.check_stat("/fencelock/tokens").await.unwrap().is_none() };
        until("the empty parent is gone", SLACK, gone).await;
        let guard = client.acquire("tokens").await.unwrap();
        assert!(Some(guard.token()) > last, "the counting of nodes began anew, that of tokens must not");
        assert!(guard.evidence().get("path").unwrap().ends_with("-0000000000"), "{:?}", guard.evidence());
        last = Some(guard.token());
        server.server_mut().kill();
        server.restart().unwrap();
    }
}

/// A hold survives a restart of the server that takes less than the session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_within_the_session_loses_nothing() {
    let mut server = ZooKeeper::start().unwrap();
    let url = format!("zookeeper://{}?session=20s&request_timeout=2s", server.address());
    let (one, two) = (client(&url).await, client(&url).await);
    let guard = one.acquire("kept").await.unwrap();
    server.server_mut().kill();
    server.restart().unwrap();
    let second = within("the server answers again", SLACK, async {
        loop {
            if let Ok(tried) = two.try_acquire("kept").await {
                return tried;
            }
        }
    })
    .await;
    assert!(second.is_none() && guard.is_held());
    // The library may still be pausing before it connects again; then the release is made good later.
    if let Err(e) = within("a release ends", SLACK, guard.release()).await {
        assert_eq!(e.kind(), fencelock_core::ErrorKind::Unavailable, "{e}");
    }
    within("handed over", SLACK, two.acquire("kept")).await.unwrap().release().await.unwrap();
}
