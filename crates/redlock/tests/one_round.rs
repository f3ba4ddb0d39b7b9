//! An acquire that brings its number along: one round where the client knows the shard, and two where the guess was wrong.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, missing_docs, reason = "a test")]

mod common;

use common::{claim, client, engine, initialised, locks, names_of_one_shard, proxies, scripts, settled, until};
use fencelock_core::{Attempt, DistributedLock as _, ErrorKind, Grant};
use fencelock_lab::{Mood, RedisNodes};
use fencelock_redlock::RedlockLock;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const SLACK: Duration = Duration::from_secs(20);
const TTL: Duration = Duration::from_secs(60);

async fn three() -> RedisNodes {
    initialised(RedisNodes::start(3).unwrap()).await
}

async fn take(engine: &RedlockLock, name: &str) -> Grant {
    match engine.try_acquire(&claim(name, TTL)).await.unwrap() {
        Attempt::Granted(grant) => grant,
        _ => unreachable!("contended"),
    }
}

fn shard(name: &str) -> u64 {
    xxhash_rust::xxh3::xxh3_64(name.as_bytes()) % 65_536
}

fn fence(name: &str) -> String {
    format!("redlock:{{{}}}:fence", shard(name))
}

/// A counter as a node has it.
fn counter(nodes: &RedisNodes, at: usize, name: &str) -> u64 {
    let answer = nodes.nodes()[at].command(&["GET", &fence(name)]).unwrap();
    answer.lines().nth(1).unwrap().parse().unwrap()
}

fn raise(nodes: &RedisNodes, at: usize, name: &str, counter: &str) {
    nodes.nodes()[at].command(&["SET", &fence(name), counter]).unwrap();
}

/// The token that a node has noted with its part; empty where there is none.
fn noted(nodes: &RedisNodes, at: usize, name: &str) -> String {
    let key = format!("redlock:{{{}}}:lock:{name}", shard(name));
    let answer = nodes.nodes()[at].command(&["GET", &key]).unwrap();
    let token = answer.lines().nth(1).unwrap_or_default().split(' ').nth(2).unwrap_or_default();
    if token == "0" { String::new() } else { token.to_owned() }
}

async fn nothing_left(nodes: &RedisNodes) {
    until("nothing is left", SLACK, || (0..nodes.nodes().len()).all(|at| locks(nodes, at) == 0)).await;
}

/// A part that another holds on one node, with a number.
fn others_part(nodes: &RedisNodes, at: usize, name: &str) -> String {
    let key = format!("redlock:{{{}}}:lock:{name}", shard(name));
    let node = &nodes.nodes()[at];
    node.command(&["SET", &key, "00000000000000 0123456789abcdef0123456789abcdef 9 0 1 x", "PX", "60000"]).unwrap();
    key
}

#[tokio::test(flavor = "multi_thread")]
async fn a_known_shard_costs_a_node_one_command_to_acquire_and_one_to_release() {
    const ROUNDS: u64 = 20;
    let nodes = three().await;
    let engine = engine(&nodes.addresses()).await.unwrap();
    let counts = || [0, 1, 2].map(|at| scripts(&nodes.nodes()[at]));
    let fresh = counts();
    let first = take(&engine, "a").await;
    let mut last = first.token;
    first.lease.release().await.unwrap();
    // The first that is sent of each kind may be sent with its script.
    until("the first is over", SLACK, || (0..3).all(|at| counts()[at] >= fresh[at] + 3)).await;
    nothing_left(&nodes).await;
    let before = settled(counts).await;
    for _ in 0..ROUNDS {
        let grant = take(&engine, "a").await;
        assert_eq!(grant.token.get(), last.get() + 1, "no number is spent in vain");
        last = grant.token;
        grant.lease.release().await.unwrap();
        nothing_left(&nodes).await;
    }
    for (before, after) in before.into_iter().zip(settled(counts).await) {
        println!("{ROUNDS} acquires and releases: {} commands", after - before);
        // A node outside of the majority may be sent both in one.
        assert!((ROUNDS..=2 * ROUNDS).contains(&(after - before)), "{} commands", after - before);
    }
}

/// The guess is refused, and the hold's token is noted on all nodes all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_guess_that_is_refused_is_followed_by_a_larger_number() {
    let nodes = three().await;
    let engine = engine(&nodes.addresses()).await.unwrap();
    take(&engine, "a").await.lease.release().await.unwrap();
    nothing_left(&nodes).await;
    let mut ahead = 1_000;
    for refusing in [&[0][..], &[1], &[2], &[0, 1], &[1, 2], &[0, 1, 2]] {
        ahead += 1_000;
        let before = [0, 1, 2].map(|at| counter(&nodes, at, "a")).into_iter().max().unwrap();
        refusing.iter().for_each(|at| raise(&nodes, *at, "a", &ahead.to_string()));
        let grant = take(&engine, "a").await;
        let token = grant.token.get();
        println!("refused by {refusing:?}: {token}");
        assert!(token == ahead + 1 || (refusing.len() == 1 && token > before), "{token}");
        let wanted = token.to_string();
        // In one round, a node outside of its majority that refused the number has a counter as large, and notes nothing.
        let told = |at: usize| token == ahead + 1 || !refusing.contains(&at);
        until("noted on all", SLACK, || (0..3).filter(|at| told(*at)).all(|at| noted(&nodes, at, "a") == wanted)).await;
        let shown = engine.inspect(claim("a", TTL).name()).await.unwrap().unwrap();
        assert_eq!((shown.token, shown.claim), (grant.token, Some(grant.claim.id())));
        grant.lease.release().await.unwrap();
        nothing_left(&nodes).await;
    }
}

/// Clients that know the same guess the same, in one shard.
#[tokio::test(flavor = "multi_thread")]
async fn guesses_that_collide_are_no_two_tokens() {
    const ROUNDS: usize = 25;
    let nodes = three().await;
    let names = names_of_one_shard(3);
    let granted: Arc<Vec<Mutex<Vec<u64>>>> = Arc::new(names.iter().map(|_| Mutex::default()).collect());
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let client = client(&nodes.addresses()).await;
        for (at, name) in names.iter().enumerate() {
            let (client, name, granted) = (client.clone(), name.clone(), Arc::clone(&granted));
            tasks.push(tokio::spawn(async move {
                let (mut rounds, begun) = (0, Instant::now());
                while rounds < ROUNDS && begun.elapsed() < Duration::from_secs(120) {
                    match client.named(&name).ttl(TTL).wait_at_most(SLACK).acquire().await {
                        Ok(guard) => {
                            granted[at].lock().unwrap().push(guard.token().get());
                            guard.release().await.unwrap();
                            rounds += 1;
                        }
                        Err(e) => assert!(e.is_retryable(), "{e}"),
                    }
                }
                rounds
            }));
        }
    }
    for task in tasks {
        assert_eq!(task.await.unwrap(), ROUNDS, "each gets its turn");
    }
    let mut all = HashSet::new();
    for tokens in &*granted {
        let tokens = tokens.lock().unwrap();
        assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
        assert!(tokens.iter().all(|token| all.insert(*token)), "a token came twice");
    }
    println!("{} tokens of one shard, the largest is {}", all.len(), all.iter().max().unwrap());
}

/// Neither where the guess is right nor where it is not.
#[tokio::test(flavor = "multi_thread")]
async fn a_third_node_that_is_slow_or_hangs_delays_nothing() {
    let nodes = three().await;
    let (proxies, addresses) = proxies(&nodes);
    let engine = engine(&addresses).await.unwrap();
    for (what, mood) in [("slow", Mood::DelayRequests(Duration::from_millis(600))), ("hung", Mood::Hold)] {
        for refused in [false, true] {
            // On a machine that stands still for a moment all are slow.
            let mut times = Vec::new();
            for _ in 0..5 {
                proxies[2].set(Mood::Honest);
                take(&engine, "a").await.lease.release().await.unwrap();
                nothing_left(&nodes).await;
                if refused {
                    let ahead = counter(&nodes, 0, "a") + 100;
                    raise(&nodes, 0, "a", &ahead.to_string());
                }
                proxies[2].set(mood);
                let begun = Instant::now();
                let grant = take(&engine, "a").await;
                times.push(begun.elapsed());
                grant.lease.release().await.unwrap();
            }
            println!("{what}, refused {refused}: {times:?}");
            assert!(times.iter().min().unwrap() < &Duration::from_millis(300), "{what}, {refused}: {times:?}");
            proxies[2].set(Mood::Honest);
            nothing_left(&nodes).await;
        }
    }
}

/// What an attempt has proposed is nobody's token, wherever its future was dropped.
#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_a_dropped_attempt_is_not_proposed_again() {
    let nodes = three().await;
    let (proxies, addresses) = proxies(&nodes);
    let client = client(&addresses).await;
    client.acquire("a").await.unwrap().release().await.unwrap();
    let mut dropped = 0;
    for round in 0..60 {
        // One has it, and to the others it is still on its way when the future is dropped; there it never comes.
        let others = || proxies.iter().enumerate().filter(|(at, _)| *at != round % 3).map(|(_, proxy)| proxy);
        others().for_each(|proxy| proxy.set(Mood::DelayRequests(Duration::from_millis(600))));
        let limit = Duration::from_micros(fastrand::u64(0..6_000));
        match tokio::time::timeout(limit, client.named("a").ttl(TTL).acquire()).await {
            Ok(guard) => guard.unwrap().release().await.unwrap(),
            Err(_) => dropped += 1,
        }
        others().for_each(|proxy| proxy.set(Mood::Refuse));
        others().for_each(|proxy| proxy.set(Mood::Honest));
        until("it is undone", SLACK, || client.pending() == 0).await;
        nothing_left(&nodes).await;
        let before = [0, 1, 2].map(|at| counter(&nodes, at, "a")).into_iter().max().unwrap();
        proxies.iter().for_each(|proxy| proxy.set(Mood::Honest));
        // The one that accepted the dropped number is not heard in time.
        proxies[round % 3].set(Mood::DelayRequests(Duration::from_millis(100)));
        let guard = client.named("a").ttl(TTL).wait_at_most(SLACK).acquire().await.unwrap();
        assert!(guard.token().get() > before, "{} was accepted somewhere, and {before} before it", guard.token());
        guard.release().await.unwrap();
        nothing_left(&nodes).await;
    }
    println!("{dropped} of 60 were dropped");
    assert!(dropped > 5);
}

/// A number that is noted on one node, while another is silent, is that of a hold if it stays, and of nobody if not.
#[tokio::test(flavor = "multi_thread")]
async fn a_part_with_a_number_on_a_minority_is_no_hold_for_long() {
    let nodes = three().await;
    let (proxies, addresses) = proxies(&nodes);
    let engine = engine(&addresses).await.unwrap();
    take(&engine, "a").await.lease.release().await.unwrap();
    nothing_left(&nodes).await;
    let key = others_part(&nodes, 0, "a");
    proxies[2].set(Mood::Hold);
    let tried = engine.try_acquire(&claim("a", TTL)).await.unwrap();
    assert!(matches!(&tried, Attempt::Contended { holder: Some(who), .. } if &**who == "x"), "{tried:?}");
    let trying = tokio::spawn(async move { engine.try_acquire(&claim("a", TTL)).await.unwrap() });
    until("it has its part", SLACK, || locks(&nodes, 1) == 1).await;
    nodes.nodes()[0].command(&["DEL", &key]).unwrap();
    let Attempt::Granted(grant) = trying.await.unwrap() else { unreachable!("nobody holds it") };
    grant.lease.release().await.unwrap();
}

/// What was ended on one node before the acquire came to the next is no hold of one round.
#[tokio::test(flavor = "multi_thread")]
async fn a_forced_release_between_the_nodes_of_one_round_is_noticed() {
    let nodes = three().await;
    let (proxies, addresses) = proxies(&nodes);
    let (trying, other) = (engine(&addresses).await.unwrap(), engine(&nodes.addresses()).await.unwrap());
    take(&trying, "a").await.lease.release().await.unwrap();
    nothing_left(&nodes).await;
    // Tries in vain take its numbers ahead of the counters.
    let held = take(&other, "a").await;
    for _ in 0..5 {
        assert!(matches!(trying.try_acquire(&claim("a", TTL)).await.unwrap(), Attempt::Contended { .. }));
    }
    held.lease.release().await.unwrap();
    nothing_left(&nodes).await;
    proxies[1].set(Mood::DelayRequests(Duration::from_millis(500)));
    proxies[2].set(Mood::DropRequests);
    let attempt = tokio::spawn(async move { trying.try_acquire(&claim("a", TTL)).await });
    until("the first node has its part", SLACK, || locks(&nodes, 0) == 1).await;
    let forced = other.admin().unwrap().force_release(claim("a", TTL).name()).await.unwrap();
    let tried = attempt.await.unwrap();
    assert!(!forced, "one part is no hold");
    let e = tried.unwrap_err();
    println!("{e}");
    assert_eq!(e.kind(), ErrorKind::Unavailable, "one part is left of it");
}
