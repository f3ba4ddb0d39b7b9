//! Forced releases: what a majority did is done, and the lock stays closed for the delay that the hold asked for.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, missing_docs, reason = "a test")]

mod common;

use common::{claim, client, engine, forget_token, initialised, locks, until};
use fencelock_core::{Attempt, DistributedLock as _, FencingToken, LossReason};
use fencelock_lab::RedisNodes;
use std::time::{Duration, Instant};

const SLACK: Duration = Duration::from_secs(10);

async fn three() -> RedisNodes {
    initialised(RedisNodes::start(3).unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lock_stays_closed_for_the_delay_and_then_goes_to_the_waiter() {
    let nodes = three().await;
    let (holder, other, operator) =
        (client(&nodes.addresses()).await, client(&nodes.addresses()).await, client(&nodes.addresses()).await);
    let (ttl, delay) = (Duration::from_secs(6), Duration::from_secs(4));
    let guard = holder.named("a").ttl(ttl).lock_delay(delay).acquire().await.unwrap();
    let token = guard.token();
    let waiter = tokio::spawn({
        let other = other.clone();
        async move { (other.acquire("a").await.unwrap(), Instant::now()) }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    let forced = Instant::now();
    assert!(operator.force_release("a").await.unwrap());
    assert!(forced.elapsed() < delay, "the call does not wait");
    assert!(operator.inspect("a").await.unwrap().is_none(), "nobody holds it");
    assert!(operator.list("").await.unwrap().is_empty());
    assert!(other.named("a").try_acquire().await.unwrap().is_none(), "and it is closed");
    assert!(!operator.force_release("a").await.unwrap(), "nobody to be ended");
    let asked = engine(&nodes.addresses()).await.unwrap();
    let Attempt::Contended { retry_after, holder: None, .. } = asked.try_acquire(&claim("a", ttl)).await.unwrap()
    else {
        unreachable!("nobody holds it, and nobody can take it")
    };
    assert!(retry_after.unwrap() <= delay, "{retry_after:?}");
    assert_eq!(guard.lost().await, LossReason::Revoked);
    let (next, when) = waiter.await.unwrap();
    let closed = when.duration_since(forced);
    println!("closed for {closed:?}, asked for {delay:?}");
    assert!(closed >= delay, "{closed:?}");
    assert!(closed < delay + SLACK && next.token() > token, "{closed:?}, {} after {token}", next.token());
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_minority_away_it_is_closed_on_all_that_answer() {
    let mut nodes = initialised(RedisNodes::start_durable(5).unwrap()).await;
    let (holder, other) = (client(&nodes.addresses()).await, client(&nodes.addresses()).await);
    let delay = Duration::from_secs(3);
    let guard = holder.named("a").ttl(Duration::from_secs(20)).lock_delay(delay).acquire().await.unwrap();
    until("all have it", SLACK, || (0..5).all(|at| locks(&nodes, at) == 1)).await;
    for at in [1, 3] {
        nodes.nodes_mut()[at].server_mut().kill();
    }
    let forced = Instant::now();
    assert!(other.force_release("a").await.unwrap());
    for at in [1, 3] {
        nodes.nodes_mut()[at].restart().unwrap();
    }
    let next = other.acquire("a").await.unwrap();
    assert!(forced.elapsed() >= delay, "{:?}", forced.elapsed());
    assert!(next.token() > guard.token());
    assert_eq!(guard.lost().await, LossReason::Revoked);
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_delay_it_is_free_at_once() {
    let nodes = three().await;
    let (holder, other) = (client(&nodes.addresses()).await, client(&nodes.addresses()).await);
    let guard = holder.named("a").ttl(Duration::from_secs(60)).acquire().await.unwrap();
    assert!(other.force_release("a").await.unwrap());
    let next = other.try_acquire("a").await.unwrap().unwrap();
    assert!(next.token() > guard.token());
    next.release().await.unwrap();
}

/// One node has not noted the hold's token, and one is away: the hold that was meant is ended all the same, and no other.
#[tokio::test(flavor = "multi_thread")]
async fn the_hold_that_was_meant_is_known_by_its_claim_where_its_token_is_not_noted() {
    let mut nodes = initialised(RedisNodes::start_durable(5).unwrap()).await;
    let (holder, other) = (client(&nodes.addresses()).await, client(&nodes.addresses()).await);
    let guard = holder.named("a").ttl(Duration::from_secs(60)).acquire().await.unwrap();
    until("all have it", SLACK, || (0..5).all(|at| locks(&nodes, at) == 1)).await;
    let keys = nodes.nodes()[0].command(&["KEYS", "*:lock:*"]).unwrap();
    let key = keys.lines().find(|line| line.contains(":lock:")).unwrap();
    // Not before it is noted there, or it would be after this.
    until("its token to forget", SLACK, || forget_token(&nodes, 0, key)).await;
    nodes.nodes_mut()[1].server_mut().kill();
    assert!(!other.force_release_if("a", FencingToken::new(guard.token().get() + 1)).await.unwrap());
    assert!(other.inspect("a").await.unwrap().is_some());
    assert!(other.force_release_if("a", guard.token()).await.unwrap());
    assert_eq!((locks(&nodes, 0), locks(&nodes, 2)), (0, 0), "ended where no token was noted too");
    let next = other.try_acquire("a").await.unwrap().unwrap();
    assert!(!holder.force_release_if("a", guard.token()).await.unwrap(), "the next hold is another");
    next.release().await.unwrap();
}

/// A release by force in the middle of an attempt, between its rounds too: no token for what it does not hold any more.
#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_whose_parts_are_taken_away_before_its_token_is_no_hold() {
    let nodes = three().await;
    let engine = engine(&nodes.addresses()).await.unwrap();
    let (name, ttl) = ("a", Duration::from_secs(60));
    let admin = engine.admin().unwrap();
    let (mut taken_away, begun) = (0, Instant::now());
    while taken_away < 5 && begun.elapsed() < Duration::from_secs(20) {
        let claim = claim(name, ttl);
        let forcing = async {
            tokio::time::sleep(Duration::from_micros(fastrand::u64(0..3_000))).await;
            admin.force_release(claim.name()).await
        };
        let (tried, forced) = tokio::join!(engine.try_acquire(&claim), forcing);
        match tried {
            Ok(Attempt::Granted(grant)) => {
                // It held when it was granted: it may have been ended since, if that was said.
                if forced.is_ok_and(|forced| !forced) {
                    let held = grant.lease.release().await;
                    assert!(held.is_ok(), "granted, ended by nobody, and not held: {held:?}");
                }
            }
            Ok(_) => {}
            Err(_) => taken_away += 1,
        }
        let _ = admin.force_release(claim.name()).await;
    }
    println!("{taken_away} attempts lost their parts between the rounds, in {:?}", begun.elapsed());
}
