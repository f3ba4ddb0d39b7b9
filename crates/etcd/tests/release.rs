//! Releases through a member that hangs, or whose answer is lost.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stderr,
    missing_docs,
    reason = "a test"
)]

mod common;

use common::{LONG, client, connect, keys, plain, queued, until};
use fencelock_core::{ErrorKind, LockClient, LockGuard, NamedLock};
use fencelock_etcd::EtcdConfig;
use fencelock_lab::{Etcd, Mood, Proxy};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

const LIMIT: Duration = Duration::from_millis(1_200);

/// One member by two ways, either of which may be the one that is asked first.
async fn by_two_ways(etcd: &Etcd) -> ([Proxy; 2], LockClient) {
    let ways = [(); 2].map(|()| Proxy::before(etcd.endpoint(0).unwrap()).unwrap());
    let endpoints = ways.iter().map(|way| format!("127.0.0.1:{}", way.port()));
    let client = connect(EtcdConfig::new(endpoints).with_request_timeout(LIMIT)).await;
    lock(&client, "warm-up").acquire().await.unwrap().release().await.unwrap();
    (ways, client)
}

/// A long ttl, so that no keepalive finds the way blocked first.
fn lock(client: &LockClient, name: &str) -> NamedLock {
    client.named(name).ttl(Duration::from_secs(60))
}

/// Whatever hangs, the release is known within the limit of a request, and the lock is free.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_goes_to_another_member() {
    let etcd = Etcd::start().unwrap();
    let (ways, one) = by_two_ways(&etcd).await;
    let other = client(&etcd).await;
    for round in 0..6 {
        let (name, way) = (format!("lock-{round}"), &ways[round % 2]);
        let guard = lock(&one, &name).acquire().await.unwrap();
        way.set(Mood::Hold);
        let asked = Instant::now();
        if round < 4 {
            guard.release().await.unwrap();
        } else {
            assert!(one.force_release(&name).await.unwrap());
        }
        let took = asked.elapsed();
        assert_eq!(keys(&etcd, &format!("fencelock/l/{name}/")).await, [""; 0]);
        assert!(took < LIMIT + Duration::from_secs(8), "{took:?}");
        // What was held back arrives, and takes nothing from the next.
        let next = other.try_acquire(&name).await.unwrap().unwrap();
        way.set(Mood::Honest);
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(next.is_held() && !keys(&etcd, &format!("fencelock/l/{name}/")).await.is_empty());
        next.release().await.unwrap();
    }
}

/// The release was acted on and its answer lost: a second one finds the lock free, and does not say that it was the first's doing.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_is_unknown_and_the_lock_is_free() {
    let etcd = Etcd::start().unwrap();
    let (ways, one) = by_two_ways(&etcd).await;
    let mut unknown = 0;
    for round in 0..6 {
        let (name, way) = (format!("lock-{round}"), &ways[round % 2]);
        let guard = lock(&one, &name).acquire().await.unwrap();
        way.set(Mood::DropReplies);
        match guard.release().await {
            Ok(()) => {}
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
                unknown += 1;
            }
        }
        assert_eq!(keys(&etcd, &format!("fencelock/l/{name}/")).await, [""; 0]);
        way.set(Mood::Honest);
        way.cut();
        until("nothing is pending", LONG, async || one.pending() == 0).await;
    }
    eprintln!("{unknown} of 6 releases had an answer that was lost");
    assert!(unknown >= 2);
}

/// An acquire has a copy on its way, and its place is gone before it is released: the copy takes nothing when it arrives.
#[tokio::test(flavor = "multi_thread")]
async fn a_place_that_is_gone_leaves_no_way_for_a_late_copy() {
    let etcd = Etcd::start().unwrap();
    let (ways, one) = by_two_ways(&etcd).await;
    let mut store = plain(&etcd).await;
    let (mut delayed, mut told) = (0, 0);
    for round in 0..8 {
        let (name, way) = (format!("lock-{round}"), &ways[round % 2]);
        way.set(Mood::Hold);
        let guard = lock(&one, &name).acquire().await.unwrap();
        let place = guard.evidence().get("key").unwrap().to_owned();
        let id = place.rsplit('/').next().unwrap().to_owned();
        store.delete(place.as_str(), None).await.unwrap();
        // Before its watch tells: a lost hold is undone later, and its id made dead then.
        told += usize::from(!guard.is_held());
        let released = guard.release().await.unwrap_err().kind();
        assert_eq!(released, ErrorKind::Lost);
        delayed += usize::from(!keys(&etcd, &format!("fencelock/v/{id}")).await.is_empty());
        way.set(Mood::Honest);
        tokio::time::sleep(Duration::from_millis(300)).await;
        if told == 0 {
            assert_eq!(keys(&etcd, &format!("fencelock/l/{name}/")).await, [""; 0], "the late copy took the lock");
        }
    }
    eprintln!("{delayed} of 8 acquires had a copy that was late, {told} were told before");
    assert!(delayed >= 2);
}

/// Takes the next place in the queue, as the one of that number.
async fn in_line(etcd: &Etcd, client: &LockClient, name: &str, number: usize) -> JoinHandle<LockGuard> {
    let lock = lock(client, name);
    let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
    queued(etcd, name, number).await;
    waiting
}

/// The release is cut, as heard by nobody, by the server or by all, while claims of the same client and of another wait
/// behind it, and some of them give up in that instant: the lock goes to one after another of them, in their order.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_is_cut_hands_the_lock_to_one() {
    // Well below the time after which a waiter looks by itself.
    const SOON: Duration = Duration::from_secs(15);
    let etcd = Etcd::start().unwrap();
    let way = Proxy::before(etcd.endpoint(0).unwrap()).unwrap();
    let config = EtcdConfig::new([format!("127.0.0.1:{}", way.port())]).with_request_timeout(LIMIT);
    let (cut, other) = (connect(config).await, client(&etcd).await);
    let (mut heard, mut unheard) = (0, 0);
    for round in 0..32_usize {
        let name = format!("lock-{round}");
        let mut held = lock(&cut, &name).acquire().await.unwrap();
        let mut waiters = Vec::new();
        for place in 0..3 {
            // The one that is next is of this client three times of four.
            let client = if (round >> place) & 3 == 3 { &other } else { &cut };
            waiters.push(in_line(&etcd, client, &name, 2 + place).await);
        }
        let ways = [Mood::DropReplies, Mood::DropRequests, Mood::Honest, Mood::DelayReplies(LIMIT * 2)];
        way.set(ways[round % 4]);
        let token = held.token();
        let release = tokio::spawn(held.release());
        tokio::time::sleep(Duration::from_micros(fastrand::u64(0..3_000))).await;
        if round % 3 == 0 {
            waiters.remove(0).abort();
        }
        way.cut();
        way.set(Mood::Honest);
        match tokio::time::timeout(SOON, release).await.unwrap().unwrap() {
            Ok(()) => heard += 1,
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
                unheard += 1;
            }
        }
        let mut newest = token;
        while !waiters.is_empty() {
            held = tokio::time::timeout(SOON, waiters.remove(0)).await.expect("one is not woken").unwrap();
            assert!(held.is_held() && held.token() > newest, "{newest} before {}", held.token());
            newest = held.token();
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert!(waiters.iter().all(|waiter| !waiter.is_finished()), "two hold at once, in round {round}");
            assert!(held.is_held());
            held.release().await.unwrap();
        }
        until("nothing is left", SOON, async || keys(&etcd, &format!("fencelock/l/{name}/")).await.is_empty()).await;
    }
    eprintln!("32 releases cut: {heard} heard, {unheard} not");
    assert!(heard > 0 && unheard > 0);
}
