//! Renewals of one client, together.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, missing_docs, reason = "a test")]

mod common;

use common::{client, forget_token, has_token, initialised, locks, proxies, renewed, scripts, settled, until};
use fencelock_lab::{Mood, RedisNodes};
use std::time::{Duration, Instant};

const SLACK: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_holds_cost_each_node_a_command_for_each_256_and_interval() {
    const HOLDS: u64 = 1_000;
    let nodes = initialised(RedisNodes::start(3).unwrap()).await;
    let client = client(&nodes.addresses()).await;
    let ttl = Duration::from_secs(9);
    let mut guards = Vec::new();
    for at in 0..HOLDS {
        guards.push(client.named(&format!("{at}")).ttl(ttl).acquire().await.unwrap());
    }
    // The first interval is over, in which they fall into step.
    tokio::time::sleep(ttl / 2).await;
    let counts = || nodes.nodes().iter().map(scripts).collect::<Vec<_>>();
    let (before, started) = (counts(), Instant::now());
    tokio::time::sleep(ttl).await;
    let intervals = u64::try_from(started.elapsed().as_millis().div_ceil((ttl / 3).as_millis())).unwrap();
    for (before, after) in before.into_iter().zip(counts()) {
        let cost = after - before;
        println!("{HOLDS} holds for {intervals} intervals: {cost} commands");
        assert!(cost <= (HOLDS.div_ceil(256) + 1) * (intervals + 1), "{cost} commands in {intervals} intervals");
        assert!(cost >= HOLDS / 256 * (intervals - 1), "{cost} commands cannot have renewed them");
    }
    assert!(guards.iter().all(|guard| guard.is_held()));
    for guard in guards {
        guard.release().await.unwrap();
    }
    let before = settled(counts).await;
    tokio::time::sleep(ttl / 2).await;
    assert_eq!(counts(), before, "when nobody is left, nothing is sent");
}

/// Of a batch, one hold was taken away: it is told, and the others are renewed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_lost_hold_costs_the_others_nothing() {
    let nodes = initialised(RedisNodes::start(3).unwrap()).await;
    let (client, other) = (client(&nodes.addresses()).await, client(&nodes.addresses()).await);
    let ttl = Duration::from_secs(5);
    let mut guards = Vec::new();
    for at in 0..40 {
        guards.push(client.named(&format!("{at}")).ttl(ttl).acquire().await.unwrap());
    }
    assert!(other.force_release("7").await.unwrap());
    until("it is told", ttl + SLACK, || !guards[7].is_held()).await;
    renewed(guards.iter().enumerate().filter(|(at, _)| *at != 7).map(|(_, guard)| guard)).await;
    assert_eq!(guards.iter().filter(|guard| guard.is_held()).count(), 39);
}

/// Two of five hang in turn, for longer than a ttl: every hold is renewed by the rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_minorities_lose_nothing() {
    let nodes = initialised(RedisNodes::start(5).unwrap()).await;
    let (proxies, addresses) = proxies(&nodes);
    let client = client(&addresses).await;
    let ttl = Duration::from_secs(5);
    let mut guards = Vec::new();
    for at in 0..300 {
        guards.push(client.named(&format!("{at}")).ttl(ttl).acquire().await.unwrap());
    }
    proxies[0].set(Mood::Hold);
    proxies[3].set(Mood::Hold);
    tokio::time::sleep(ttl + Duration::from_millis(500)).await;
    assert_eq!(guards.iter().filter(|guard| guard.is_held()).count(), guards.len());
}

/// A node that did not hear of the token when it was agreed on hears of it when the hold is renewed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_missed_the_token_learns_it() {
    let nodes = initialised(RedisNodes::start(3).unwrap()).await;
    let client = client(&nodes.addresses()).await;
    let guard = client.named("a").ttl(Duration::from_secs(5)).acquire().await.unwrap();
    until("all have it", SLACK, || (0..3).all(|at| locks(&nodes, at) == 1)).await;
    let keys = nodes.nodes()[2].command(&["KEYS", "*:lock:a"]).unwrap();
    let key = keys.lines().nth(2).unwrap();
    // Not before it is noted there, or it would be after this.
    until("its token to forget", SLACK, || forget_token(&nodes, 2, key)).await;
    until("it has learned it", SLACK, || has_token(&nodes, 2, key)).await;
    nodes.nodes()[0].server().stop();
    // One may have been under way.
    renewed([&guard]).await;
    renewed([&guard]).await;
    nodes.nodes()[0].server().cont();
    guard.release().await.unwrap();
}
