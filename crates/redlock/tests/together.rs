//! What is ready together travels together to each node, and each gets its own answer.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, missing_docs, reason = "a test")]

mod common;

use common::{client, initialised, proxies, scripts, until};
use fencelock_core::{Error, ErrorKind, LockClient, LockGuard};
use fencelock_lab::{Mood, RedisNodes};
use std::time::Duration;
use tokio::task::JoinSet;

const SLACK: Duration = Duration::from_secs(10);
const TTL: Duration = Duration::from_secs(60);

/// One try for each name, all at once; the outcomes in the order of the names.
async fn try_all(client: &LockClient, names: &[String]) -> Vec<Result<Option<LockGuard>, Error>> {
    let mut tries = JoinSet::new();
    for (at, name) in names.iter().enumerate() {
        let lock = client.named(name).ttl(TTL);
        tries.spawn(async move { (at, lock.try_acquire().await) });
    }
    let mut outcomes = tries.join_all().await;
    outcomes.sort_by_key(|(at, _)| *at);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

fn names(number: usize) -> Vec<String> {
    (0..number).map(|at| format!("lock {at}")).collect()
}

/// The parts of held locks on each node.
fn parts(nodes: &RedisNodes) -> Vec<usize> {
    let of = |node: &fencelock_lab::Redis| node.command(&["KEYS", "*:lock:*"]).unwrap().matches(":lock:").count();
    nodes.nodes().iter().map(of).collect()
}

async fn drained(client: &LockClient) {
    until("nothing pending", SLACK, || client.pending() == 0).await;
}

/// Every third is held by somebody else. Each is told of its own lock, with a token of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_a_group_has_its_own_answer() {
    let nodes = initialised(RedisNodes::start(3).unwrap()).await;
    let (client, other) = (client(&nodes.addresses()).await, client(&nodes.addresses()).await);
    let names = names(60);
    let mut held = Vec::new();
    for name in names.iter().step_by(3) {
        held.push(other.named(name).ttl(TTL).acquire().await.unwrap());
    }
    let calls = || nodes.nodes().iter().map(scripts).collect::<Vec<_>>();
    let before = calls();
    let outcomes = try_all(&client, &names).await;
    for (before, after) in before.into_iter().zip(calls()) {
        // A round for all, one more for the tokens of two thirds.
        println!("60 tries at once: {} calls", after - before);
        assert!(after - before <= 50, "{} calls for 100 requests", after - before);
    }
    let mut releases = JoinSet::new();
    for (at, outcome) in outcomes.into_iter().enumerate() {
        let guard = outcome.unwrap();
        assert_eq!(guard.is_none(), at % 3 == 0, "{}", names[at]);
        let Some(guard) = guard else { continue };
        let shown = other.inspect(&names[at]).await.unwrap().unwrap();
        assert_eq!(shown.token, guard.token(), "{} was told another's token", names[at]);
        releases.spawn(guard.release());
    }
    assert!(releases.join_all().await.into_iter().all(|released| released.is_ok()));
    drained(&client).await;
    until("only the other's are left", SLACK, || parts(&nodes).into_iter().all(|parts| parts == held.len())).await;
    for guard in held {
        guard.release().await.unwrap();
    }
}

/// The answers of one node are lost: the others make a majority. Those of two: nobody is told yes or no.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_answers_are_unknown_to_each_and_leave_nothing() {
    let nodes = initialised(RedisNodes::start(3).unwrap()).await;
    let (proxies, addresses) = proxies(&nodes);
    let client = client(&addresses).await;
    let names = names(40);
    proxies[0].set(Mood::DropReplies);
    let mut releases = JoinSet::new();
    for outcome in try_all(&client, &names).await {
        releases.spawn(outcome.unwrap().unwrap().release());
    }
    assert!(releases.join_all().await.into_iter().all(|released| released.is_ok()));
    proxies[1].set(Mood::DropReplies);
    for outcome in try_all(&client, &names).await {
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    proxies.iter().for_each(|proxy| proxy.set(Mood::Honest));
    drained(&client).await;
    until("nothing is left on any node", SLACK, || parts(&nodes).into_iter().all(|parts| parts == 0)).await;
}

/// Callers go at any moment, whether their requests wait for others or are under way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_goes_while_others_stay_leaves_nothing() {
    let nodes = initialised(RedisNodes::start(3).unwrap()).await;
    let client = client(&nodes.addresses()).await;
    for round in 0..15 {
        let mut tries = JoinSet::new();
        for at in 0..24 {
            let lock = client.named(&format!("{round}/{at}")).ttl(TTL);
            let patience = if at % 2 == 0 { SLACK } else { Duration::from_micros(fastrand::u64(0..4_000)) };
            tries.spawn(async move { (at, tokio::time::timeout(patience, lock.acquire()).await) });
        }
        for (at, outcome) in tries.join_all().await {
            match outcome {
                Ok(guard) => guard.unwrap().release().await.unwrap(),
                Err(_) => assert_eq!(at % 2, 1, "one that stayed was not served"),
            }
        }
    }
    drained(&client).await;
    until("nothing is left on any node", SLACK, || parts(&nodes).into_iter().all(|parts| parts == 0)).await;
}

/// Two acquires that leave together with a script that a slow node does not know are sent there twice, and the releases in
/// between: nothing is left there.
#[tokio::test]
async fn a_release_that_is_first_at_a_slow_node_leaves_nothing() {
    let nodes = initialised(RedisNodes::start(3).unwrap()).await;
    let (proxies, addresses) = proxies(&nodes);
    let client = client(&addresses).await;
    // So that both shards' counters are known; and then, at the slow node, the single scripts, and not the one for many.
    for name in [0, 1, 0].map(|at| format!("lock {at}")) {
        assert!(nodes.nodes()[2].command(&["SCRIPT", "FLUSH"]).unwrap().starts_with("+OK"));
        let guard = client.acquire(&name).await.unwrap();
        until("all have it", SLACK, || parts(&nodes) == [1, 1, 1]).await;
        guard.release().await.unwrap();
        until("nothing is left of it", SLACK, || parts(&nodes) == [0, 0, 0]).await;
    }
    proxies[2].set(Mood::DelayReplies(Duration::from_millis(150)));
    for guard in try_all(&client, &names(2)).await {
        guard.unwrap().unwrap().release().await.unwrap();
    }
    let dead = || nodes.nodes()[2].command(&["KEYS", "*:void:*"]).unwrap().matches(":void:").count();
    until("a release was first, and its id is dead there", SLACK, || dead() > 0).await;
    proxies[2].set(Mood::Honest);
    until("nothing is left", SLACK, || parts(&nodes) == [0, 0, 0]).await;
    drained(&client).await;
}

/// While a node hangs a release makes the id dead there, and nowhere else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_is_made_dead_only_where_it_may_still_arrive() {
    let nodes = initialised(RedisNodes::start(3).unwrap()).await;
    let (proxies, addresses) = proxies(&nodes);
    let client = client(&addresses).await;
    client.acquire("a").await.unwrap().release().await.unwrap();
    until("nothing is left of it", SLACK, || parts(&nodes) == [0, 0, 0]).await;
    proxies[2].set(Mood::Hold);
    let guard = client.named("a").ttl(TTL).acquire().await.unwrap();
    // Until the time of the request to that node is over.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    guard.release().await.unwrap();
    proxies[2].set(Mood::Honest);
    let dead = |at: usize| nodes.nodes()[at].command(&["KEYS", "*:void:*"]).unwrap().matches(":void:").count();
    until("it is dead there", SLACK, || dead(2) == 1).await;
    until("nothing is left", SLACK, || parts(&nodes) == [0, 0, 0]).await;
    assert_eq!([dead(0), dead(1)], [0, 0]);
    drained(&client).await;
}

/// Who may not delete frees nothing, alone or with others: a release says so, and does not claim it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_node_refuses_to_free_is_not_freed() {
    let nodes = initialised(RedisNodes::start(3).unwrap()).await;
    let client = client(&nodes.addresses()).await;
    let names = names(20);
    let mut guards = Vec::new();
    for outcome in try_all(&client, &names).await {
        guards.push(outcome.unwrap().unwrap());
    }
    until("all have them", SLACK, || parts(&nodes) == [20, 20, 20]).await;
    for node in nodes.nodes() {
        assert!(node.command(&["ACL", "SETUSER", "default", "-del"]).unwrap().starts_with("+OK"));
    }
    let mut releases = JoinSet::new();
    guards.into_iter().for_each(|guard| drop(releases.spawn(guard.release())));
    let outcomes = releases.join_all().await;
    assert_eq!(parts(&nodes), [20, 20, 20]);
    let claimed = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    assert_eq!(claimed, 0, "of 20 releases that freed nothing, {claimed} say that they did");
}
