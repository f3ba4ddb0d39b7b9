//! Three servers: the leader killed, all frozen, restarts.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, missing_docs, reason = "a test")]

mod common;

use common::{SLACK, client, in_line, nodes, raw, watch, within};
use fencelock_core::Level;
use fencelock_lab::{Ensemble, ZooKeeperSettings};
use std::time::{Duration, Instant};

fn url(ensemble: &Ensemble, session: &str) -> String {
    format!("zookeeper://{}?session={session}&request_timeout=2s&connect_timeout=5s", ensemble.addresses())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leader_is_killed_while_one_holds_and_five_wait() {
    let mut ensemble = Ensemble::start(3).unwrap();
    let url = url(&ensemble, "6s");
    let raw = raw(&ensemble.addresses()).await;
    let holder = client(&url).await;
    assert_eq!(holder.guarantees().level(), Some(Level::Replicated));
    let mut clients = Vec::new();
    for _ in 0..5 {
        clients.push(client(&url).await);
    }
    let guard = holder.acquire("led").await.unwrap();
    let mut waiting = Vec::new();
    for client in &clients {
        waiting.push(in_line(&raw, client, "led").await);
    }
    let places = nodes(&raw, "led").await;
    let leader = ensemble.wait_for_leader().unwrap();
    let killed = Instant::now();
    let told = watch(&guard);
    ensemble.members_mut()[leader].server_mut().kill();
    ensemble.wait_for_leader().unwrap();
    println!("a new leader after {:?}", killed.elapsed());
    // Longer than the session and everything that could be taken off it.
    tokio::time::sleep(Duration::from_secs(7)).await;
    let kept = guard.is_held();
    println!("the holder {}", if kept { "stayed" } else { "was told" });
    if kept {
        assert!(waiting.iter().all(|waiter| !waiter.is_finished()), "granted to a second while the first is held");
        assert_eq!(nodes(&raw, "led").await.len(), 6, "every place is kept");
        guard.release().await.unwrap();
    }
    let (mut last, mut order) = (None, Vec::new());
    for waiter in waiting {
        let next = within("every waiter is served", SLACK, waiter).await.unwrap().unwrap();
        if last.is_none() {
            assert!(told.is_finished(), "granted to a second while the first believed");
        }
        assert!(Some(next.token()) > last, "{} came after {last:?}", next.token());
        last = Some(next.token());
        order.push(next.evidence().get("path").unwrap().rsplit('/').next().unwrap().to_owned());
        next.release().await.unwrap();
    }
    let mut expected = places;
    expected.sort_by_key(|node| node[33..].to_owned());
    assert_eq!(order, expected[1..], "the order was not kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_frozen_past_the_session() {
    let ensemble = Ensemble::start(3).unwrap();
    let url = url(&ensemble, "3s");
    let (one, two) = (client(&url).await, client(&url).await);
    let raw = raw(&ensemble.addresses()).await;
    let guard = one.acquire("frozen").await.unwrap();
    let waiting = in_line(&raw, &two, "frozen").await;
    let told = watch(&guard);
    let frozen = Instant::now();
    for member in ensemble.members() {
        member.server().stop();
    }
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(told.is_finished(), "believed 6 s after the servers froze, with a session of 3 s");
    println!("told {:?} after the servers froze", told.join().unwrap() - frozen);
    for member in ensemble.members() {
        member.server().cont();
    }
    let next = within("the waiter is served", SLACK * 2, waiting).await.unwrap().unwrap();
    assert!(next.token() > guard.token());
    next.release().await.unwrap();
    assert!(guard.release().await.is_err());
    within("the old holder's client works again", SLACK, one.acquire("frozen")).await.unwrap().release().await.unwrap();
    within("the undos end", SLACK, one.close()).await;
    assert!(nodes(&raw, "frozen").await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_over_leader_changes_and_restarts() {
    let settings = ZooKeeperSettings::default().with_property("znode.container.checkIntervalMs=300");
    let mut ensemble = Ensemble::start_with(3, &settings).unwrap();
    let mut last = None;
    let client = client(&url(&ensemble, "6s")).await;
    for round in 0..4 {
        let guard = within("granted", SLACK * 2, client.acquire("tokens")).await.unwrap();
        assert!(Some(guard.token()) > last, "round {round}: {} came after {last:?}", guard.token());
        last = Some(guard.token());
        println!("round {round}: token {:#x}", guard.token().get());
        drop(guard);
        if round == 2 {
            // All at once: the epoch goes on.
            for member in ensemble.members_mut() {
                member.server_mut().kill();
            }
        } else {
            let leader = ensemble.wait_for_leader().unwrap();
            ensemble.members_mut()[leader].server_mut().kill();
        }
        ensemble.launch().unwrap();
    }
}
