//! A follower is cut off from its leader alone, and goes on answering its clients for a while.
//! Servers in network namespaces; needs root.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, missing_docs, reason = "a test")]

mod common;

use common::{SLACK, client, in_line, raw, until, watch, within};
use fencelock_core::{ErrorKind, Level};
use fencelock_lab::{Ensemble, Mood, Network, Proxy, ZooKeeperSettings};
use std::time::{Duration, Instant};

/// Both clients: what is lost is told after, what is granted after (from the cut).
async fn cut_off(session: &str) -> (Option<Level>, Duration, Duration) {
    let network = Network::of(3).unwrap();
    // A follower answers for 10 · 0.5 s without its leader; 5.5 s are taken off a session.
    let settings = ZooKeeperSettings::default().with_tick(500).with_sync_limit(10);
    let ensemble = Ensemble::start_in(&network, &settings).unwrap();
    let leader = ensemble.wait_for_leader().unwrap();
    let follower = (leader + 1) % 3;
    let on = |member: usize| {
        let address = ensemble.members()[member].address();
        format!("zookeeper://{address}?session={session}&request_timeout=2s")
    };
    let holder = client(&on(follower)).await;
    let other = client(&on(leader)).await;
    let raw = raw(&ensemble.members()[leader].address().to_string()).await;
    let level = holder.guarantees().level();
    println!("session {session}: {:?}", holder.guarantees().rules()[0].reason());
    let guard = holder.acquire("cut").await.unwrap();
    let waiting = in_line(&raw, &other, "cut").await;
    let told = watch(&guard);
    let cut = Instant::now();
    network.separate(follower, leader).unwrap();
    let next = within("the waiter is served", SLACK * 2, waiting).await.unwrap().unwrap();
    let granted = cut.elapsed();
    assert!(next.token() > guard.token(), "the token grows all the same");
    let told = tokio::task::spawn_blocking(move || told.join().unwrap()).await.unwrap() - cut;
    println!("session {session}: told after {told:?}, granted to the next after {granted:?}");
    (level, told, granted)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_long_session_the_holder_is_told_before_the_next_grant() {
    let (level, told, granted) = cut_off("15s").await;
    assert_eq!(level, Some(Level::Replicated));
    assert!(told < granted, "two believed at once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_short_session_it_is_advisory_and_two_hold_at_once() {
    let (level, told, granted) = cut_off("4s").await;
    assert_eq!(level, Some(Level::Advisory));
    println!("two held for {:?}", told.saturating_sub(granted));
    assert!(told > granted, "the double hold that the level warns of was not shown");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_level_that_a_short_session_cannot_give_is_refused() {
    let settings = ZooKeeperSettings::default().with_tick(500).with_sync_limit(10);
    let ensemble = Ensemble::start_with(3, &settings).unwrap();
    let client = client(&format!("zookeeper://{}?session=4s", ensemble.addresses())).await;
    let e = client.guarantees().require(Level::Leased).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Refused);
    assert!(e.message().contains("`session`") && e.message().contains("5.5s"), "{e}");
}

/// What a follower has not passed on when it is cut off is lost to the leader, which counts from the
/// request before. Here nothing had come for a while, and the follower answers as long as it can.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_was_silent_before_the_cut_is_told_before_the_next_grant() {
    let network = Network::of(3).unwrap();
    let settings = ZooKeeperSettings::default().with_tick(500).with_sync_limit(10);
    let ensemble = Ensemble::start_in(&network, &settings).unwrap();
    let leader = ensemble.wait_for_leader().unwrap();
    let follower = (leader + 1) % 3;
    let proxy = Proxy::before(ensemble.members()[follower].address()).unwrap();
    let holder = client(&format!("zookeeper://127.0.0.1:{}?session=15s&request_timeout=2s", proxy.port())).await;
    let at_leader = ensemble.members()[leader].address();
    let (other, raw) =
        (client(&format!("zookeeper://{at_leader}?session=15s")).await, raw(&at_leader.to_string()).await);
    let guard = holder.acquire("quiet").await.unwrap();
    let fixed = holder.named("fixed").auto_renew(false).acquire().await.unwrap();
    let waiting = in_line(&raw, &other, "quiet").await;
    // Right after a heartbeat, so that the connection is not given up for its silence.
    let before = guard.remaining();
    until("renewed", SLACK, || async { guard.remaining() > before }).await;
    let told = watch(&guard);
    let quiet = Instant::now();
    proxy.set(Mood::Hold);
    tokio::time::sleep(Duration::from_millis(2_300)).await;
    network.separate(follower, leader).unwrap();
    proxy.set(Mood::Honest);
    let cut = Instant::now();
    let mut last = cut;
    // What was on its way is answered first: after a longer silence the leader would have to answer.
    tokio::time::sleep(Duration::from_millis(100)).await;
    while cut.elapsed() < Duration::from_secs(7) {
        if fixed.extend(Duration::from_secs(15)).await.is_ok() {
            last = Instant::now();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!("answered until {:?} after the cut", last - cut);
    assert!(last - cut > Duration::from_secs(3), "the follower did not go on answering, so nothing was shown");
    let next = within("the waiter is served", SLACK * 2, waiting).await.unwrap().unwrap();
    let granted = quiet.elapsed();
    let believed = guard.remaining();
    let told = tokio::task::spawn_blocking(move || told.join().unwrap()).await.unwrap() - quiet;
    println!("told {told:?}, granted to the next {granted:?} after the last that the leader heard");
    assert!(next.token() > guard.token());
    assert!(told < granted, "two believed at once, the first for another {believed:?}");
}
