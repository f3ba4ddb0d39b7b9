//! A follower is cut off from its leader alone, and goes on answering its clients for a while.
//! Servers in network namespaces; needs root.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, missing_docs, reason = "a test")]

mod common;

use common::{SLACK, client, in_line, raw, watch, within};
use fencelock_core::{ErrorKind, Level};
use fencelock_lab::{Ensemble, Network, ZooKeeperSettings};
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
