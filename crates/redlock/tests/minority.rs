//! A minority that is away, silent, or comes back.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, missing_docs, reason = "a test")]

mod common;

use common::{claim, client, engine, initialised, locks, proxies, scripts, until};
use fencelock_core::{Attempt, DistributedLock as _, ErrorKind, Level};
use fencelock_lab::{Mood, RedisNodes};
use fencelock_redlock::RedlockLock;
use std::time::{Duration, Instant};

const SLACK: Duration = Duration::from_secs(10);
/// So long that nothing runs out while a test looks.
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

/// The node took its part, was not heard, and is cut off while the hold is released.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_silent_minority_has_is_undone_when_it_comes_back() {
    let nodes = three().await;
    let (proxies, addresses) = proxies(&nodes);
    let engine = engine(&addresses).await.unwrap();
    take(&engine, "warm").await.lease.release().await.unwrap();
    until("nothing is left of it", SLACK, || (0..3).all(|at| locks(&nodes, at) == 0)).await;
    proxies[2].set(Mood::DropReplies);
    let grant = take(&engine, "a").await;
    until("the third has its part", SLACK, || locks(&nodes, 2) == 1).await;
    proxies[2].set(Mood::Refuse);
    grant.lease.release().await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!([locks(&nodes, 0), locks(&nodes, 1), locks(&nodes, 2)], [0, 0, 1]);
    proxies[2].set(Mood::Honest);
    let back = Instant::now();
    until("its part is gone long before it expires", SLACK, || locks(&nodes, 2) == 0).await;
    println!("undone {:?} after the node could be reached", back.elapsed());
}

/// It does not vote until it was looked at, so that the level is that of those who do.
#[tokio::test(flavor = "multi_thread")]
async fn who_is_away_at_connect_votes_once_it_has_come_and_the_level_follows() {
    let nodes = initialised(RedisNodes::start_durable(3).unwrap()).await;
    let (proxies, addresses) = proxies(&nodes);
    proxies[1].set(Mood::Refuse);
    nodes.nodes()[1].command(&["CONFIG", "SET", "appendfsync", "everysec"]).unwrap();
    let engine = engine(&addresses).await.unwrap();
    let level = || engine.guarantees().level();
    assert_eq!(level(), Some(Level::Fenced), "{:?}", engine.guarantees());
    let away = format!("127.0.0.1:{}", proxies[1].port());
    let seeded = engine.guarantees().rules().iter().find(|rule| rule.id() == "redlock.seeded").unwrap().clone();
    assert!(seeded.reason().contains(&away), "{}", seeded.reason());
    let grant = take(&engine, "a").await;
    assert_eq!([locks(&nodes, 0), locks(&nodes, 1), locks(&nodes, 2)], [1, 0, 1]);
    grant.lease.release().await.unwrap();

    proxies[1].set(Mood::Honest);
    until("it was looked at, and lowers the level", SLACK, || level() == Some(Level::Advisory)).await;
    let grant = take(&engine, "a").await;
    until("it votes", SLACK, || locks(&nodes, 1) == 1).await;
    grant.lease.release().await.unwrap();

    nodes.nodes()[1].command(&["CONFIG", "SET", "appendfsync", "always"]).unwrap();
    assert_eq!(engine.probe().await.unwrap().level(), Some(Level::Fenced), "asked anew");
}

/// One that turns out to be another's twin when it comes never votes.
#[tokio::test(flavor = "multi_thread")]
async fn a_twin_that_was_away_at_connect_is_barred() {
    let nodes = three().await;
    let twin = fencelock_lab::Proxy::before(nodes.nodes()[0].address()).unwrap();
    let address = |at: usize| nodes.nodes()[at].address();
    twin.set(Mood::Refuse);
    let engine = engine(&format!("{},{},127.0.0.1:{}", address(0), address(1), twin.port())).await.unwrap();
    twin.set(Mood::Honest);
    tokio::time::sleep(Duration::from_secs(3)).await;
    nodes.nodes()[1].server().stop();
    let e = engine.try_acquire(&claim("a", LONG)).await.unwrap_err();
    assert!(e.kind() == ErrorKind::Unavailable, "one server has one vote: {e}");
    nodes.nodes()[1].server().cont();
    let seeded = engine.guarantees().rules().iter().find(|rule| rule.id() == "redlock.seeded").unwrap().clone();
    assert!(seeded.reason().contains(&twin.port().to_string()), "{}", seeded.reason());
}

/// Unknown is neither yes nor no.
#[tokio::test(flavor = "multi_thread")]
async fn where_the_answers_do_not_decide_nobody_guesses() {
    let nodes = three().await;
    let (proxies, addresses) = proxies(&nodes);
    let (holder, asker) = (engine(&addresses).await.unwrap(), engine(&nodes.addresses()).await.unwrap());
    take(&holder, "warm").await.lease.release().await.unwrap();
    until("nothing is left of it", SLACK, || (0..3).all(|at| locks(&nodes, at) == 0)).await;
    proxies[1].set(Mood::Refuse);
    let grant = take(&holder, "a").await;
    until("of the two others", SLACK, || [0, 1, 2].map(|at| locks(&nodes, at)) == [1, 0, 1]).await;
    let name = claim("a", LONG).name().clone();
    let shown = asker.inspect(&name).await.unwrap().unwrap();
    assert_eq!((shown.token, shown.claim), (grant.token, Some(grant.claim.id())));
    assert!(shown.remaining.unwrap() > LONG / 2);

    nodes.nodes()[2].server().stop();
    let e = asker.inspect(&name).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "held by a majority or not, the third must say: {e}");
    let free = asker.inspect(claim("b", LONG).name()).await.unwrap();
    assert!(free.is_none(), "two without a part are enough to know");
    assert!(asker.try_acquire(&claim("a", LONG)).await.is_ok_and(|tried| matches!(tried, Attempt::Contended { .. })));
    let e = asker.admin().unwrap().force_release(&name).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    assert_eq!(locks(&nodes, 0), 0, "it is ended where it was reached");
    nodes.nodes()[2].server().cont();
    until("no majority holds it", SLACK, || {
        futures_now(asker.inspect(&name)).is_some_and(|shown| shown.is_ok_and(|shown| shown.is_none()))
    })
    .await;
}

/// Whoever is killed between the two rounds leaves a majority without a token until that runs out. Waiters must not
/// ask for it over and over.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_attempt_leaves_is_waited_out_and_not_asked_for_all_the_time() {
    let nodes = three().await;
    let client = client(&nodes.addresses()).await;
    client.acquire("a").await.unwrap().release().await.unwrap();
    let shard = xxhash_rust::xxh3::xxh3_64(b"a") % 65_536;
    let (key, left) = (format!("redlock:{{{shard}}}:lock:a"), Duration::from_secs(4));
    for node in nodes.nodes() {
        let hold = "00000000000000 0123456789abcdef0123456789abcdef 0 0 4 gone";
        node.command(&["SET", &key, hold, "PX", &left.as_millis().to_string()]).unwrap();
    }
    let begun = Instant::now();
    assert!(client.try_acquire("a").await.unwrap().is_none());
    let before = scripts(&nodes.nodes()[0]);
    let guard = client.named("a").wait_at_most(left + SLACK).acquire().await.unwrap();
    let asked = scripts(&nodes.nodes()[0]) - before;
    println!("had it after {:?}, for which a node was asked {asked} times", begun.elapsed());
    assert!(asked <= 60, "{asked} times in {:?}", begun.elapsed());
    guard.release().await.unwrap();
}

/// What a future comes to, waited for on this thread.
fn futures_now<T>(future: impl Future<Output = T>) -> Option<T> {
    let wait = async { tokio::time::timeout(Duration::from_secs(5), future).await.ok() };
    tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(wait))
}
