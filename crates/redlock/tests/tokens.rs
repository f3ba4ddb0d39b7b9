//! Tokens where proposals meet each other, and where requests arrive twice.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, missing_docs, reason = "a test")]

mod common;

use common::{claim, engine, initialised, locks, names_of_one_shard, proxies, renewed, until};
use fencelock_core::{Attempt, DistributedLock as _, ErrorKind, FencingToken};
use fencelock_lab::{Mood, RedisNodes};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Names of one shard are free for all their clients at once: only the counters stand between their tokens.
#[tokio::test(flavor = "multi_thread")]
async fn clients_that_propose_against_each_other_never_agree_on_the_same() {
    const ROUNDS: usize = 40;
    let nodes = initialised(RedisNodes::start(3).unwrap()).await;
    let names = names_of_one_shard(6);
    let mut tasks = Vec::new();
    for name in &names {
        let (engine, name) = (engine(&nodes.addresses()).await.unwrap(), name.clone());
        tasks.push(tokio::spawn(async move {
            let (mut tokens, mut failed) = (Vec::new(), 0);
            let begun = Instant::now();
            while tokens.len() < ROUNDS && begun.elapsed() < Duration::from_secs(120) {
                match engine.try_acquire(&claim(&name, Duration::from_secs(10))).await {
                    Ok(Attempt::Granted(grant)) => {
                        tokens.push(grant.token);
                        grant.lease.release().await.unwrap();
                    }
                    Ok(_) => {}
                    Err(e) => {
                        assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
                        failed += 1;
                    }
                }
            }
            (tokens, failed)
        }));
    }
    let (mut all, mut failures) = (Vec::new(), 0);
    for task in tasks {
        let (tokens, failed) = task.await.unwrap();
        assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
        assert_eq!(tokens.len(), ROUNDS, "each gets its turn");
        all.extend(tokens);
        failures += failed;
    }
    let different: HashSet<_> = all.iter().collect();
    let largest = all.iter().max().unwrap();
    println!("{} tokens of one shard, the largest is {largest}; {failures} attempts gave up", all.len());
    assert_eq!(different.len(), all.len(), "a token came twice");
}

/// Each acquire of a client brings another number along. Where a larger one of another name of the shard comes first, it is
/// refused, and the second rounds of a client follow one another.
#[tokio::test(flavor = "multi_thread")]
async fn one_client_seldom_proposes_against_itself() {
    let nodes = initialised(RedisNodes::start(3).unwrap()).await;
    let engine = engine(&nodes.addresses()).await.unwrap();
    let names = Arc::new(names_of_one_shard(8));
    let mut tasks = Vec::new();
    for at in 0..names.len() {
        let (engine, names) = (Arc::clone(&engine), Arc::clone(&names));
        tasks.push(tokio::spawn(async move {
            let mut tokens = Vec::new();
            for _ in 0..10 {
                let claim = claim(&names[at], Duration::from_secs(10));
                let Attempt::Granted(grant) = engine.try_acquire(&claim).await.unwrap() else {
                    unreachable!("contended")
                };
                tokens.push(grant.token.get());
                grant.lease.release().await.unwrap();
            }
            tokens
        }));
    }
    let mut all = Vec::new();
    for task in tasks {
        let tokens = task.await.unwrap();
        assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
        all.extend(tokens);
    }
    let (different, largest) = (all.iter().collect::<HashSet<_>>().len(), all.iter().max().unwrap());
    println!("80 tokens of one shard, the largest is {largest}");
    assert_eq!((all.len(), different), (80, 80), "a token came twice");
    assert!(*largest <= 80 * 3, "{largest}: most numbers were spent in vain");
}

/// Every request is delivered twice, the second time late and by another way.
#[tokio::test(flavor = "multi_thread")]
async fn requests_that_arrive_twice_repeat_no_token() {
    let nodes = initialised(RedisNodes::start(3).unwrap()).await;
    let (proxies, addresses) = proxies(&nodes);
    let (one, other) = (engine(&addresses).await.unwrap(), engine(&addresses).await.unwrap());
    proxies.iter().for_each(|proxy| proxy.set(Mood::RequestsTwice(Duration::from_millis(30))));
    let mut last = FencingToken::new(0);
    let mut grants = 0;
    let begun = Instant::now();
    while grants < 40 {
        assert!(begun.elapsed() < Duration::from_secs(120), "{grants} grants");
        let engine = if grants % 2 == 0 { &one } else { &other };
        match engine.try_acquire(&claim("a", Duration::from_millis(300))).await {
            Ok(Attempt::Granted(grant)) => {
                assert!(grant.token > last, "{} after {last}", grant.token);
                last = grant.token;
                grants += 1;
                // Late copies may have taken it anew; then it was not ours any more, or ours on some nodes only.
                let _ = grant.lease.release().await;
            }
            // A late copy of an answered acquire holds it for a ttl, which nobody renews.
            Ok(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(e) => assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}"),
        }
    }
    println!("{grants} grants in {:.1?} with every request delivered twice, tokens to {last}", begun.elapsed());
}

/// A hold whose token a majority has accepted, and one node refused, is renewed by that one too.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_counter_is_ahead_renews_too() {
    let nodes = initialised(RedisNodes::start(3).unwrap()).await;
    let (proxies, addresses) = proxies(&nodes);
    let client = common::client(&addresses).await;
    client.acquire("warm").await.unwrap().release().await.unwrap();
    let (mut held, slack) = (None, Duration::from_secs(20));
    for name in ["a", "b", "c", "d", "e"] {
        // What a proposal that was given up leaves behind on a minority, which is heard too late to be counted.
        let shard = xxhash_rust::xxh3::xxh3_64(name.as_bytes()) % 65_536;
        nodes.nodes()[0].command(&["SET", &format!("redlock:{{{shard}}}:fence"), "5000"]).unwrap();
        proxies[0].set(Mood::DelayRequests(Duration::from_millis(300)));
        let guard = client.named(name).ttl(Duration::from_secs(6)).acquire().await.unwrap();
        until("its part is late", slack, || locks(&nodes, 0) == 1).await;
        tokio::time::sleep(Duration::from_millis(600)).await;
        proxies[0].set(Mood::Honest);
        if guard.token().get() == 1 {
            held = Some(guard);
            break;
        }
        // On a machine that stood still the others were no faster.
        assert!(guard.token().get() > 5_000, "{}", guard.token());
        guard.release().await.unwrap();
        until("nothing is left of it", slack, || (0..3).all(|at| locks(&nodes, at) == 0)).await;
    }
    let guard = held.unwrap();
    nodes.nodes()[2].server().stop();
    // The node that refused its token is part of the majority that renews it. One may have been under way.
    renewed([&guard]).await;
    renewed([&guard]).await;
    nodes.nodes()[2].server().cont();
    let name = guard.name().clone();
    guard.release().await.unwrap();
    let next = client.acquire(name.as_str()).await.unwrap();
    assert!(next.token().get() > 1);
    next.release().await.unwrap();
}
