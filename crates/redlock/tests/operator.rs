//! What an operator asks for where not every answer comes, or some come too late to be right.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs, reason = "a test")]

mod common;

use common::{change_hold, claim, client, engine, initialised, locks, operator, proxies, until};
use fencelock_core::{Attempt, DistributedLock as _, ErrorKind};
use fencelock_lab::{Mood, RedisNodes};
use fencelock_redlock::{NodeState, RedlockLock};
use std::time::Duration;

const SLACK: Duration = Duration::from_secs(10);
const LONG: Duration = Duration::from_secs(600);

async fn three() -> RedisNodes {
    initialised(RedisNodes::start(3).unwrap()).await
}

async fn take(engine: &RedlockLock, name: &str) -> fencelock_core::Grant {
    match engine.try_acquire(&claim(name, LONG)).await.unwrap() {
        Attempt::Granted(grant) => grant,
        _ => unreachable!("contended"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_larger_token_base_raises_the_counters_of_a_set_in_use() {
    let nodes = three().await;
    let client = client(&nodes.addresses()).await;
    client.acquire("a").await.unwrap().release().await.unwrap();
    assert!(operator(&nodes).init(5_000).await.unwrap(), "they were smaller");
    assert!(!operator(&nodes).init(5_000).await.unwrap() && !operator(&nodes).init(0).await.unwrap());
    for name in ["a", "b"] {
        let guard = client.acquire(name).await.unwrap();
        assert!(guard.token().get() > 5_000, "{}", guard.token());
        guard.release().await.unwrap();
    }
    assert!(!operator(&nodes).init(4_000).await.unwrap(), "nothing goes back");
    // What is missing is not made.
    let shard = xxhash_rust::xxh3::xxh3_64(b"a") % 65_536;
    assert!(nodes.nodes()[1].command(&["DEL", &format!("redlock:{{{shard}}}:fence")]).unwrap().starts_with(":1"));
    assert!(operator(&nodes).init(6_000).await.unwrap());
    assert_eq!(operator(&nodes).status().await.unwrap().nodes[1].counters, 65_535);
}

/// That counters could not be read does not mean that there are none.
#[tokio::test(flavor = "multi_thread")]
async fn counters_that_are_not_told_are_not_counted_as_lost() {
    let nodes = three().await;
    assert!(nodes.nodes()[1].command(&["ACL", "SETUSER", "default", "-exists"]).unwrap().starts_with("+OK"));
    let status = operator(&nodes).status().await.unwrap();
    assert!(matches!(&status.nodes[1].state, NodeState::Unreachable(why) if why.contains("counters")), "{status:?}");
    assert_eq!(status.voting(), 2);
}

/// With the third silent nobody knows about one name, and everything else is told.
#[tokio::test(flavor = "multi_thread")]
async fn one_name_in_doubt_hides_no_other() {
    let nodes = three().await;
    let (proxies, addresses) = proxies(&nodes);
    let (holder, asker) = (engine(&addresses).await.unwrap(), engine(&nodes.addresses()).await.unwrap());
    let known = take(&holder, "known").await;
    until("all have it", SLACK, || (0..3).all(|at| locks(&nodes, at) == 1)).await;
    proxies[1].set(Mood::Refuse);
    let doubtful = take(&holder, "in doubt").await;
    until("of the two others", SLACK, || [0, 1, 2].map(|at| locks(&nodes, at)) == [2, 1, 2]).await;
    nodes.nodes()[2].server().stop();
    let listed = asker.admin().unwrap().list("").await;
    nodes.nodes()[2].server().cont();
    let listed = listed.unwrap();
    let names: Vec<_> = listed.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["in doubt", "known"]);
    let (doubt, sure) = (&listed[0].1, &listed[1].1);
    assert!(doubt.note.as_deref().unwrap().contains("not known whether it holds: 1 of 3"), "{doubt:?}");
    assert_eq!((doubt.token, doubt.remaining), (doubtful.token, None));
    assert_eq!((sure.token, sure.note.as_deref()), (known.token, None));
    assert!(sure.remaining.is_some());
}

/// One node that has nonsense in the place of a hold.
#[tokio::test(flavor = "multi_thread")]
async fn a_hold_that_cannot_be_read_decides_nothing() {
    let nodes = three().await;
    let engine = engine(&nodes.addresses()).await.unwrap();
    let grant = take(&engine, "a").await;
    until("all have it", SLACK, || (0..3).all(|at| locks(&nodes, at) == 1)).await;
    let shard = xxhash_rust::xxh3::xxh3_64(b"a") % 65_536;
    let key = format!("redlock:{{{shard}}}:lock:a");
    assert!(change_hold(&nodes, 1, &key, " %d+ ", " x "));
    for _ in 0..20 {
        let held = engine.inspect(grant.claim.name()).await.unwrap().unwrap();
        assert_eq!(held.token, grant.token);
    }
    assert_eq!(engine.admin().unwrap().list("").await.unwrap().len(), 1);
}

/// Held by exactly a majority, one of which is silent: whether it was still ours nobody can tell, and nobody waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_is_not_known_hinders_nobody() {
    let nodes = three().await;
    let (proxies, addresses) = proxies(&nodes);
    let (holder, other) = (engine(&addresses).await.unwrap(), engine(&nodes.addresses()).await.unwrap());
    take(&holder, "warm").await.lease.release().await.unwrap();
    until("nothing is left of it", SLACK, || (0..3).all(|at| locks(&nodes, at) == 0)).await;
    proxies[1].set(Mood::Refuse);
    let grant = take(&holder, "a").await;
    until("of the two others", SLACK, || [0, 1, 2].map(|at| locks(&nodes, at)) == [1, 0, 1]).await;
    proxies[1].set(Mood::Honest);
    // It answers again before the release, so that it says that it has no part.
    until("it is reached", SLACK, || {
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current()
                .block_on(async { take(&holder, "again").await.lease.release().await.is_ok() })
        }) && locks(&nodes, 1) == 0
    })
    .await;
    nodes.nodes()[2].server().stop();
    let token = grant.token;
    let e = grant.lease.release().await.unwrap_err();
    assert!(e.to_string().contains("freed on 1 of 3 nodes, not held on 1"), "{e}");
    assert_eq!(e.kind(), ErrorKind::Unavailable, "the third may have been taken away from us before: {e}");
    let next = take(&other, "a").await;
    assert!(next.token > token, "held by the next one, though the third is still silent");
    nodes.nodes()[2].server().cont();
    until("only the next one's parts are left", SLACK, || locks(&nodes, 2) <= 1).await;
    next.lease.release().await.unwrap();
    until("nothing is left", SLACK, || (0..3).all(|at| locks(&nodes, at) == 0)).await;
}

/// Three of the four others are a majority of five: one that goes away during the delay is not needed.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_brought_back_though_one_of_the_others_goes_away_meanwhile() {
    let mut nodes = initialised(RedisNodes::start(5).unwrap()).await;
    let client = client(&nodes.addresses()).await;
    let guard = client.acquire("a").await.unwrap();
    let token = guard.token();
    guard.release().await.unwrap();
    nodes.nodes_mut()[0].server_mut().kill();
    nodes.nodes_mut()[0].restart().unwrap();
    let (operator, node) = (operator(&nodes), nodes.nodes()[0].address().to_string());
    let reseeding = tokio::spawn(async move { operator.reseed(&node, Duration::from_secs(6)).await });
    tokio::time::sleep(Duration::from_secs(3)).await;
    nodes.nodes_mut()[3].server_mut().kill();
    assert!(reseeding.await.unwrap().unwrap());
    nodes.nodes()[1].server().stop();
    let next = client.acquire("a").await.unwrap();
    assert!(next.token() > token, "it is needed for a majority, and knows what was given out");
    nodes.nodes()[1].server().cont();
    next.release().await.unwrap();
}
