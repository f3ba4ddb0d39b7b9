//! Members that die, freeze and come back.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stderr, missing_docs, reason = "a test")]

mod common;

use common::{History, LONG, TTL, client, connect, queued, renewed, until};
use fencelock_core::{LockClient, LossReason};
use fencelock_etcd::EtcdConfig;
use fencelock_lab::{Etcd, free_port};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// One holds and five wait when the leader is killed: the holder stays or is told in time,
/// no two hold, tokens grow and the queue keeps its order.
#[tokio::test(flavor = "multi_thread")]
async fn the_leader_dies_while_one_holds_and_five_wait() {
    let mut etcd = Etcd::start_members(3).unwrap();
    let history = History::default();
    let holder = client(&etcd).await;
    let guard = holder.acquire("a").await.unwrap();
    let mut waiters = JoinSet::new();
    for place in 1..=5 {
        let (one, history) = (client(&etcd).await, history.clone());
        waiters.spawn(async move {
            let guard = one.acquire("a").await.unwrap();
            history.hold(place, &guard, tokio::time::sleep(Duration::from_millis(20))).await;
            guard.release().await.unwrap();
        });
        queued(&etcd, "a", place + 1).await;
    }
    let leader = etcd.leader().unwrap();
    let killed = Instant::now();
    etcd.kill(leader).unwrap();
    history.hold(0, &guard, tokio::time::sleep(TTL * 2)).await;
    let stayed = guard.is_held();
    let released = guard.release().await.map_err(|e| e.kind());
    eprintln!("leader killed: the holder stayed: {stayed}, released: {released:?}");
    while let Some(waiter) = tokio::time::timeout(LONG, waiters.join_next()).await.unwrap() {
        waiter.unwrap();
    }
    let held = history.checked();
    eprintln!("all five served {:?} after the kill", killed.elapsed());
    assert_eq!(held.iter().map(|held| held.who).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    etcd.restart(leader).unwrap();
    let last = held.last().unwrap().token;
    let again = holder.acquire("a").await.unwrap();
    assert!(again.token().get() > last, "tokens grow over leaders");
    again.release().await.unwrap();
}

/// All members stand still past the ttl: the holder is told by its own clock, before anybody
/// else is granted the lock; when they go on, so do the clients.
#[tokio::test(flavor = "multi_thread")]
async fn all_members_freeze_past_the_ttl() {
    let etcd = Etcd::start_members(3).unwrap();
    let history = History::default();
    let (holder, waiter) = (client(&etcd).await, client(&etcd).await);
    let guard = holder.acquire("a").await.unwrap();
    let waiting = {
        let (history, lock) = (history.clone(), waiter.named("a"));
        tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            history.hold(1, &guard, tokio::time::sleep(Duration::from_millis(50))).await;
            guard.release().await.unwrap();
        })
    };
    queued(&etcd, "a", 2).await;
    etcd.freeze();
    let frozen = Instant::now();
    history.hold(0, &guard, std::future::pending()).await;
    let told = frozen.elapsed();
    let reason = tokio::time::timeout(LONG, guard.lost()).await.unwrap();
    eprintln!("all members frozen: told {reason:?} after {told:?} of a ttl of {TTL:?}");
    assert_eq!(reason, LossReason::Expired);
    tokio::time::sleep(TTL).await;
    etcd.thaw();
    tokio::time::timeout(LONG, waiting).await.unwrap().unwrap();
    let held = history.checked();
    assert_eq!(held.len(), 2);
    assert!(held[0].to.saturating_duration_since(frozen) <= TTL, "believed for longer than its ttl");
    // The old holder's client works again.
    let again = tokio::time::timeout(LONG, holder.acquire("a")).await.unwrap().unwrap();
    again.release().await.unwrap();
}

/// The only member is killed and started again within the ttl: the hold survives, and the waiter keeps its place.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_only_member_is_survived() {
    let mut etcd = Etcd::start().unwrap();
    let (holder, waiter) = (client(&etcd).await, client(&etcd).await);
    let ttl = Duration::from_secs(20);
    let guard = holder.named("a").ttl(ttl).acquire().await.unwrap();
    let lock = waiter.named("a").ttl(ttl);
    let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
    queued(&etcd, "a", 2).await;
    etcd.kill(0).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    etcd.restart(0).unwrap();
    // It lives on keepalives after the restart.
    renewed([&guard]).await;
    assert!(!waiting.is_finished());
    let token = guard.token();
    guard.release().await.unwrap();
    let next = tokio::time::timeout(LONG, waiting).await.unwrap().unwrap();
    assert!(next.token() > token);
    let before = next.token();
    next.release().await.unwrap();
    etcd.kill(0).unwrap();
    etcd.restart(0).unwrap();
    let after = holder.acquire("a").await.unwrap();
    assert!(after.token() > before, "tokens grow over restarts");
    after.release().await.unwrap();
}

async fn many(one: &LockClient, rounds: usize) {
    for round in 0..rounds {
        let name = format!("lock {}", round % 7);
        one.acquire(&name).await.unwrap().release().await.unwrap();
        one.try_acquire(&name).await.unwrap().unwrap().release().await.unwrap();
    }
}

/// One of several endpoints is nobody's: no call fails because of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_endpoint_fails_no_call() {
    let etcd = Etcd::start().unwrap();
    let dead = format!("127.0.0.1:{}", free_port());
    for first in [true, false] {
        let live = etcd.endpoints().remove(0);
        let endpoints = if first { [dead.clone(), live] } else { [live, dead.clone()] };
        for _ in 0..5 {
            let one = connect(EtcdConfig::new(endpoints.clone())).await;
            many(&one, 20).await;
        }
    }
}

/// A follower dies, and each freezes for a while, in the middle of the work of clients that know no other member:
/// no acquire fails.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_follower_fails_no_acquire() {
    let mut etcd = Etcd::start_members(3).unwrap();
    let leader = etcd.leader().unwrap();
    let followers: Vec<_> = (0..3).filter(|at| *at != leader).collect();
    let known = || EtcdConfig::new(followers.iter().map(|at| etcd.endpoints().remove(*at)));
    let (one, two) = (connect(known()).await, connect(known()).await);
    let working = {
        let (one, two) = (one.clone(), two.clone());
        tokio::spawn(async move {
            let end = Instant::now() + Duration::from_secs(10);
            let (mut failed, mut longest) = (Vec::new(), Duration::ZERO);
            while Instant::now() < end {
                for (one, name) in [(&one, "a"), (&two, "b")] {
                    let asked = Instant::now();
                    let guard = one.named(name).ttl(LONG).acquire().await.unwrap();
                    longest = longest.max(asked.elapsed());
                    // A release that was sent to the dying member may not be known; it is made good.
                    if let Err(e) = guard.release().await {
                        failed.push(e.to_string());
                    }
                }
            }
            (failed, longest)
        })
    };
    tokio::time::sleep(Duration::from_millis(500)).await;
    etcd.kill(followers[0]).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    etcd.restart(followers[0]).unwrap();
    for frozen in [followers[1], followers[0]] {
        tokio::time::sleep(Duration::from_secs(1)).await;
        // It takes what is sent to it and answers nothing.
        etcd.server(frozen).unwrap().stop();
        tokio::time::sleep(Duration::from_secs(2)).await;
        etcd.server(frozen).unwrap().cont();
    }
    let (failed, longest) = tokio::time::timeout(LONG, working).await.unwrap().unwrap();
    eprintln!("the longest acquire took {longest:?}; releases whose answer was lost with a member: {failed:?}");
    assert!(failed.len() <= 4, "{failed:?}");
    until("nothing is left to make good", LONG, async || one.pending() + two.pending() == 0).await;
    many(&one, 5).await;
}
