//! Redis restarted, frozen, emptied of scripts, cut off, slow, and served late and twice.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test")]

mod common;

use common::{SLACK, builder, client, drained, locks, renewed, through, until, url};
use fencelock_core::{ErrorKind, LossReason};
use fencelock_lab::{Mood, Proxy, Redis};
use std::time::{Duration, Instant};

const TTL: Duration = Duration::from_millis(900);
/// Of holds that are to live on.
const LONG: Duration = Duration::from_secs(6);
/// The most that one call may take: 1 s to connect, 1 s to be answered, and a loaded machine.
const BOUND: Duration = Duration::from_secs(2 + 4);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_that_forgets_is_told_as_loss_and_survived() {
    let mut redis = Redis::start().unwrap();
    let client = client(&url(&redis)).await;
    let guard = client.named("a").ttl(TTL).acquire().await.unwrap();
    let old = guard.token();
    redis.server_mut().kill();
    let started = Instant::now();
    let e = client.named("b").ttl(TTL).try_acquire().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable);
    assert!(started.elapsed() < BOUND, "{:?}", started.elapsed());
    redis.restart().unwrap();
    // It has forgotten the hold: the next renewal is refused, at the latest the deadline passes.
    let reason = tokio::time::timeout(TTL + SLACK, guard.lost()).await.unwrap();
    assert!(matches!(reason, LossReason::Revoked | LossReason::Expired), "{reason}");
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    let again = client.named("a").ttl(LONG).wait_at_most(SLACK).acquire().await.unwrap();
    assert!(again.token() > old, "the time floor: {} after {old}", again.token());
    again.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_durable_restart_keeps_hold_and_token() {
    let mut redis = Redis::start_durable().unwrap();
    let (client, other) = (client(&url(&redis)).await, client(&url(&redis)).await);
    let ttl = Duration::from_secs(15);
    let guard = client.named("a").ttl(ttl).acquire().await.unwrap();
    redis.server_mut().kill();
    redis.restart().unwrap();
    until("renewed after the restart", SLACK * 2, || guard.remaining() > ttl * 8 / 10).await;
    let tried = async {
        loop {
            match other.try_acquire("a").await {
                Ok(attempt) => return attempt,
                Err(e) => assert_eq!(e.kind(), ErrorKind::Unavailable),
            }
        }
    };
    assert!(tokio::time::timeout(SLACK, tried).await.unwrap().is_none(), "held by the first client");
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_server_costs_no_call_more_than_its_bound() {
    let redis = Redis::start().unwrap();
    let url = format!("{}?request_timeout=800ms&connect_timeout=800ms", url(&redis));
    let client = client(&url).await;
    let guard = client.named("a").ttl(TTL).acquire().await.unwrap();
    redis.server().stop();
    for _ in 0..3 {
        let started = Instant::now();
        let e = client.named("b").ttl(TTL).try_acquire().await.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Unavailable);
        assert!(started.elapsed() < BOUND, "{:?}", started.elapsed());
        let started = Instant::now();
        assert!(client.inspect("a").await.is_err());
        assert!(started.elapsed() < BOUND, "{:?}", started.elapsed());
    }
    let reason = tokio::time::timeout(SLACK, guard.lost()).await.unwrap();
    assert_eq!(reason, LossReason::Expired);
    redis.server().cont();
    let again = client.named("a").ttl(LONG).wait_at_most(SLACK).acquire().await.unwrap();
    again.release().await.unwrap();
    drop(guard);
    drained(&client).await;
    until("no orphan", LONG + SLACK, || locks(&redis) == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_that_are_flushed_are_sent_again() {
    let redis = Redis::start().unwrap();
    let client = client(&url(&redis)).await;
    let guard = client.named("a").ttl(LONG).acquire().await.unwrap();
    let (end, mut rounds) = (Instant::now() + LONG * 3 / 4, 0);
    // Renewed at a third of it, twice by the end.
    let granted = guard.monitor().deadline().unwrap();
    while Instant::now() < end {
        redis.command(&["SCRIPT", "FLUSH"]).unwrap();
        client.acquire("b").await.unwrap().release().await.unwrap();
        client.inspect("a").await.unwrap().unwrap();
        rounds += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let moved = |guard: &fencelock_core::LockGuard| guard.monitor().deadline().map(|now| now.since(granted));
    assert!(moved(&guard) > Some(LONG / 4), "renewed {rounds} flushes long");
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_connections_come_back() {
    let redis = Redis::start().unwrap();
    let client = client(&url(&redis)).await;
    let guard = client.named("a").ttl(LONG).acquire().await.unwrap();
    let waiter = client.named("a").ttl(LONG).wait_at_most(SLACK * 4);
    let waiter = tokio::spawn(async move { waiter.acquire().await });
    for _ in 0..10 {
        redis.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).unwrap();
        redis.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).unwrap();
        tokio::time::sleep(TTL / 5).await;
    }
    // Killed connections cost no hold.
    renewed([&guard]).await;
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    drained(&client).await;
    until("no orphan", LONG + SLACK, || locks(&redis) == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_server_is_away_and_then_back() {
    let redis = Redis::start().unwrap();
    let url = format!("{}?request_timeout=800ms&connect_timeout=800ms", url(&redis));
    for what in ["ALL", "WRITE"] {
        let client = client(&url).await;
        let guard = client.named(what).ttl(TTL).acquire().await.unwrap();
        redis.command(&["CLIENT", "PAUSE", "4000", what]).unwrap();
        let started = Instant::now();
        let tried = client.named("other").ttl(TTL).try_acquire().await;
        assert_eq!(tried.unwrap_err().kind(), ErrorKind::Unavailable);
        assert!(started.elapsed() < BOUND, "{:?}", started.elapsed());
        assert_eq!(tokio::time::timeout(SLACK, guard.lost()).await.unwrap(), LossReason::Expired);
        let again = client.named(what).ttl(LONG).wait_at_most(SLACK).acquire().await.unwrap();
        again.release().await.unwrap();
        drop(guard);
        drained(&client).await;
        until("no orphan", LONG + SLACK, || locks(&redis) == 0).await;
    }
}

/// The answer is cut: what was granted unheard is undone, and never believed by two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_that_are_lost_leave_nothing() {
    let redis = Redis::start().unwrap();
    let proxy = Proxy::before(redis.address()).unwrap();
    let (client, other) = (client(&through(&proxy)).await, client(&url(&redis)).await);
    client.acquire("warm").await.unwrap().release().await.unwrap();
    for round in 0..3 {
        let name = format!("lock {round}");
        let before = last_token(&redis);
        proxy.set(Mood::DropReplies);
        let started = Instant::now();
        let e = client.named(&name).ttl(Duration::from_secs(60)).try_acquire().await.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Unavailable);
        assert!(started.elapsed() < BOUND, "{:?}", started.elapsed());
        until("the request arrived", SLACK, || last_token(&redis) != before).await;
        proxy.set(Mood::Honest);
        // Far sooner than its ttl of a minute.
        let guard = other.named(&name).wait_at_most(SLACK * 2).acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    drained(&client).await;
    assert_eq!(locks(&redis), 0);
}

/// The last token that was given out.
fn last_token(redis: &Redis) -> String {
    redis.command(&["GET", "fencelock:fence"]).unwrap()
}

/// A release whose answer is lost is made good, and the caller is told that it is not known.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_is_not_answered_is_made_good() {
    let redis = Redis::start().unwrap();
    let proxy = Proxy::before(redis.address()).unwrap();
    let client = client(&through(&proxy)).await;
    for mood in [Mood::DropReplies, Mood::DropRequests] {
        let guard = client.named("a").ttl(Duration::from_secs(60)).wait_at_most(SLACK).acquire().await.unwrap();
        proxy.set(mood);
        assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Unavailable);
        proxy.set(Mood::Honest);
        drained(&client).await;
        assert_eq!(locks(&redis), 0, "{mood:?}");
    }
}

/// Requests arrive long after they were given up, on a connection that is slower than its successor.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_come_late_take_nothing() {
    let redis = Redis::start().unwrap();
    let proxy = Proxy::before(redis.address()).unwrap();
    let (client, other) = (client(&through(&proxy)).await, client(&url(&redis)).await);
    client.acquire("warm").await.unwrap().release().await.unwrap();
    for round in 0..3 {
        let name = format!("late {round}");
        proxy.set(Mood::DelayRequests(Duration::from_millis(3_000)));
        let e = client.named(&name).ttl(Duration::from_secs(60)).try_acquire().await.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Unavailable);
        proxy.set(Mood::Honest);
        drained(&client).await;
        tokio::time::sleep(Duration::from_millis(3_000)).await;
        let guard = other.try_acquire(&name).await.unwrap();
        guard.expect("a late acquire took a lock whose id is dead").release().await.unwrap();
    }
    assert_eq!(locks(&redis), 0);
}

/// Asked twice since the first answer was cut, granted, and run out: the first request may still be on its way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_whose_hold_has_run_out_takes_nothing_more() {
    use fencelock_core::{Attempt, DistributedLock, LockName, Terms};
    let redis = Redis::start().unwrap();
    let (engine, other) = (common::engine(&url(&redis)).await.unwrap(), client(&url(&redis)).await);
    let claim = Terms::new(LockName::new("a").unwrap(), Duration::from_millis(1_500)).mint().unwrap();
    drop(claim.request());
    assert!(matches!(engine.try_acquire(&claim).await, Ok(Attempt::Granted(_))));
    assert!(matches!(engine.try_acquire(&claim).await, Ok(Attempt::Granted(_))), "the same hold");
    until("it has run out", SLACK, || locks(&redis) == 0).await;
    other.acquire("a").await.unwrap().release().await.unwrap();
    let late = engine.try_acquire(&claim).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Unavailable, "{late}");
    assert_eq!(locks(&redis), 0);
    // The acquisition goes on under another id.
    let Attempt::Granted(grant) = engine.try_acquire(&claim.latest()).await.unwrap() else {
        unreachable!("it is free")
    };
    grant.lease.release().await.unwrap();
}

/// Every request arrives twice, the copy late and on another connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_come_twice_hold_once() {
    let redis = Redis::start().unwrap();
    let mut before = 0;
    for late in [0, 3, 200] {
        let proxy = Proxy::before(redis.address()).unwrap();
        proxy.set(Mood::RequestsTwice(Duration::from_millis(late)));
        let client = builder(&through(&proxy)).await.unwrap().build().unwrap();
        let other = common::client(&url(&redis)).await;
        let mut last = fencelock_core::FencingToken::new(0);
        for round in 0..15 {
            let name = if round % 2 == 0 { "twice" } else { "twice too" };
            let guard = client.named(name).ttl(LONG).wait_at_most(SLACK).acquire().await.unwrap();
            assert!(other.try_acquire(name).await.unwrap().is_none(), "two holders");
            assert!(guard.token() > last);
            last = guard.token();
            let shown = other.inspect(name).await.unwrap().unwrap();
            assert_eq!(shown.token, guard.token(), "a copy has made a hold of its own");
            guard.release().await.unwrap();
        }
        drained(&client).await;
        tokio::time::sleep(Duration::from_millis(late)).await;
        let scripts = redis.command(&["INFO", "commandstats"]).unwrap();
        let run: u64 =
            scripts.split("cmdstat_evalsha:calls=").nth(1).unwrap().split(',').next().unwrap().parse().unwrap();
        assert!(run - before >= 15 * 2 * 2, "{} scripts: the copies did not arrive", run - before);
        before = run;
        until("copies of acquires run out with their ttl", LONG + SLACK, || locks(&redis) == 0).await;
    }
}
