//! The connection is cut at every step of acquire and release, in every way.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    missing_docs,
    reason = "a test"
)]

mod common;

use common::{SLACK, client, nodes, raw, until, watch, within};
use fencelock_core::{ErrorKind, LossReason};
use fencelock_lab::{Mood, Proxy, ZooKeeper};
use std::time::{Duration, Instant};

/// The client goes through the proxy; others go straight.
struct Bench {
    server: ZooKeeper,
    proxy: Proxy,
}

impl Bench {
    fn new() -> Self {
        let server = ZooKeeper::start().unwrap();
        let proxy = Proxy::before(server.address()).unwrap();
        Self { server, proxy }
    }

    fn through(&self, session: &str) -> String {
        format!("zookeeper://127.0.0.1:{}?session={session}&request_timeout=1s", self.proxy.port())
    }

    fn straight(&self) -> String {
        format!("zookeeper://{}?session=20s", self.server.address())
    }
}

/// How a connection is lost: what happens to what is under way, and then the cut.
const WAYS: [(&str, Mood); 3] =
    [("applied, unheard", Mood::DropReplies), ("not applied", Mood::DropRequests), ("cut in the middle", Mood::Honest)];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_that_is_cut_has_one_node_or_none() {
    let bench = Bench::new();
    let raw = raw(&bench.server.address().to_string()).await;
    let (cut, other) = (client(&bench.through("20s")).await, client(&bench.straight()).await);
    let (mut granted, mut failed) = (0, 0);
    for round in 0..60_u64 {
        let (way, mood) = WAYS[usize::try_from(round % 3).unwrap()];
        let name = format!("cut{round}");
        // A known name and a new one, a try and a wait.
        if round % 2 == 0 {
            other.acquire(&name).await.unwrap().release().await.unwrap();
        }
        bench.proxy.set(mood);
        let lock = cut.named(&name);
        let asked = tokio::spawn(async move {
            if round % 4 < 2 { lock.acquire().await.map(Some) } else { lock.try_acquire().await }
        });
        tokio::time::sleep(Duration::from_micros(fastrand::u64(0..3_000))).await;
        bench.proxy.cut();
        bench.proxy.set(Mood::Honest);
        match within("an acquire ends", SLACK, asked).await.unwrap() {
            Ok(Some(guard)) => {
                granted += 1;
                let mine = nodes(&raw, &name).await;
                assert_eq!(mine.len(), 1, "round {round}, {way}: {mine:?}");
                assert!(guard.evidence().get("path").unwrap().ends_with(&mine[0]));
                assert!(other.try_acquire(&name).await.unwrap().is_none(), "round {round}, {way}: held by two");
                within("released", SLACK, guard.release()).await.unwrap();
            }
            Ok(None) => panic!("round {round}, {way}: contended with nobody"),
            Err(e) => {
                failed += 1;
                assert_eq!(e.kind(), ErrorKind::Unavailable, "round {round}, {way}: {e}");
            }
        }
        // Undone while the session lives, and not by its end.
        until("nothing is left", Duration::from_secs(16), || async { nodes(&raw, &name).await.is_empty() }).await;
        other.try_acquire(&name).await.unwrap().unwrap().release().await.unwrap();
    }
    println!("60 acquires cut: {granted} granted all the same, {failed} failed");
    assert!(granted > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_is_cut_is_made_good() {
    let bench = Bench::new();
    let raw = raw(&bench.server.address().to_string()).await;
    let (cut, other) = (client(&bench.through("20s")).await, client(&bench.straight()).await);
    let (mut heard, mut unheard) = (0, 0);
    for round in 0..45_u64 {
        let (way, mood) = WAYS[usize::try_from(round % 3).unwrap()];
        let name = format!("release{}", round % 5);
        let guard = within("granted", SLACK, cut.acquire(&name)).await.unwrap();
        bench.proxy.set(mood);
        let release = tokio::spawn(guard.release());
        tokio::time::sleep(Duration::from_micros(fastrand::u64(0..2_000))).await;
        bench.proxy.cut();
        bench.proxy.set(Mood::Honest);
        match within("a release ends", SLACK, release).await.unwrap() {
            Ok(()) => heard += 1,
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::Unavailable, "round {round}, {way}: {e}");
                unheard += 1;
            }
        }
        until("it is free", Duration::from_secs(16), || async { nodes(&raw, &name).await.is_empty() }).await;
        other.try_acquire(&name).await.unwrap().unwrap().release().await.unwrap();
    }
    println!("45 releases cut: {heard} heard, {unheard} made good in the background");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_is_cut_keeps_its_place() {
    let bench = Bench::new();
    let raw = raw(&bench.server.address().to_string()).await;
    let (cut, other) = (client(&bench.through("20s")).await, client(&bench.straight()).await);
    let guard = other.acquire("line").await.unwrap();
    let first = common::in_line(&raw, &cut, "line").await;
    let second = common::in_line(&raw, &other, "line").await;
    for _ in 0..10 {
        bench.proxy.cut();
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..150))).await;
    }
    assert_eq!(nodes(&raw, "line").await.len(), 3);
    // The release may fall between two connections: its event is made up for.
    bench.proxy.cut();
    guard.release().await.unwrap();
    let next = within("the waiter that was cut is served", SLACK, first).await.unwrap().unwrap();
    assert!(!second.is_finished(), "the order was not kept");
    next.release().await.unwrap();
    within("the one behind it is served", SLACK, second).await.unwrap().unwrap().release().await.unwrap();
}

/// The client is cut off until the server has ended its session and granted the lock to another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_the_server_ends_is_told_before_the_next_grant() {
    let bench = Bench::new();
    let raw = raw(&bench.server.address().to_string()).await;
    let (cut, other) = (client(&bench.through("3s")).await, client(&bench.straight()).await);
    for round in 0..3 {
        let guard = within("granted", SLACK, cut.acquire("ended")).await.unwrap();
        let bystander = cut.acquire(&format!("bystander{round}")).await.unwrap();
        let waiting = common::in_line(&raw, &other, "ended").await;
        let told = watch(&guard);
        bench.proxy.set(Mood::Hold);
        let held = Instant::now();
        let next = within("the waiter is served", SLACK, waiting).await.unwrap().unwrap();
        assert!(told.is_finished(), "granted to a second while the first believed");
        println!("told {:?}, granted {:?} after the cut", told.join().unwrap() - held, held.elapsed());
        assert!(matches!(guard.lost().await, LossReason::Expired | LossReason::SessionEnded));
        assert!(!bystander.is_held(), "all holds of a session end with it");
        assert!(next.token() > guard.token());
        bench.proxy.set(Mood::Honest);
        assert!(next.is_held());
        next.release().await.unwrap();
        assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
        drop(bystander);
    }
    within("the undos end", SLACK, cut.close()).await;
    assert!(nodes(&raw, "ended").await.is_empty());
}

/// The release is cut in every way while claims of the same client and of another wait behind it, and some of them give
/// up in that instant: the lock goes to one after another of them, in their order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_is_cut_hands_the_lock_to_one() {
    // Well below the time after which a waiter looks by itself.
    const SOON: Duration = Duration::from_secs(15);
    let bench = Bench::new();
    let raw = raw(&bench.server.address().to_string()).await;
    let (cut, other) = (client(&bench.through("20s")).await, client(&bench.straight()).await);
    let (mut heard, mut unheard) = (0, 0);
    for round in 0..30_usize {
        let (way, mood) = WAYS[round % 3];
        let name = format!("handed{}", round % 5);
        // A hold that was waited for is in the line, and hands over.
        let before = within("granted", SLACK, other.acquire(&name)).await.unwrap();
        let waiting = common::in_line(&raw, &cut, &name).await;
        let mut waiters = Vec::new();
        for place in 0..3 {
            // The one that is next is of this client three times of four.
            let client = if (round >> place) & 3 == 3 { &other } else { &cut };
            waiters.push(common::in_line(&raw, client, &name).await);
        }
        before.release().await.unwrap();
        let mut held = within("granted", SOON, waiting).await.unwrap().unwrap();
        bench.proxy.set(mood);
        let mut newest = held.token();
        let release = tokio::spawn(held.release());
        tokio::time::sleep(Duration::from_micros(fastrand::u64(0..3_000))).await;
        if round % 4 == 0 {
            waiters.remove(0).abort();
        }
        bench.proxy.cut();
        bench.proxy.set(Mood::Honest);
        match within("a release ends", SLACK, release).await.unwrap() {
            Ok(()) => heard += 1,
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::Unavailable, "round {round}, {way}: {e}");
                unheard += 1;
            }
        }
        while !waiters.is_empty() {
            held = within("the next is woken", SOON, waiters.remove(0)).await.unwrap().unwrap();
            assert!(held.is_held() && held.token() > newest, "round {round}, {way}");
            newest = held.token();
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert!(waiters.iter().all(|waiter| !waiter.is_finished()), "round {round}, {way}: two hold at once");
            assert!(held.is_held(), "round {round}, {way}");
            held.release().await.unwrap();
        }
        until("nothing is left", SOON, || async { nodes(&raw, &name).await.is_empty() }).await;
    }
    println!("30 releases cut: {heard} heard, {unheard} not");
    assert!(heard > 0 && unheard > 0);
}
