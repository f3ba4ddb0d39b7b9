//! Servers that give a session different times: the shortest counts, wherever the session is.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, missing_docs, reason = "a test")]

mod common;

use common::{SLACK, client, engine, in_line, raw, until, watch, within};
use fencelock_core::{Level, LossReason, RuleOutcome};
use fencelock_lab::{Ensemble, Mood, Proxy, ZooKeeper, ZooKeeperSettings};
use std::time::{Duration, Instant};

const SHORTEST: Duration = Duration::from_secs(2);

/// Three members, of which the last gives a session 2 s at most.
fn uneven(words: &'static str) -> Ensemble {
    let usual = ZooKeeperSettings::default().with_words(words);
    let short = usual.clone().with_line("maxSessionTimeout=2000");
    Ensemble::start_each(&[usual.clone(), usual, short]).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_smallest_maximum_of_all_members_counts() {
    for words in ["*", "srvr"] {
        let ensemble = uneven(words);
        // Whichever member the session comes to first.
        for _ in 0..4 {
            let url = format!("zookeeper://{}?session=12s&tick_time=100ms&sync_limit=4", ensemble.addresses());
            let engine = engine(&url).await.unwrap();
            assert_eq!(engine.session_timeout(), SHORTEST, "words {words}");
        }
    }
}

/// The session goes over to the member with the smaller maximum, which shortens it; that answer is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_shortens_the_session_unheard_makes_no_two_holders() {
    let ensemble = uneven("*");
    let (long, short) = (ensemble.members()[0].address(), ensemble.members()[2].address());
    let (first, second) = (Proxy::before(long).unwrap(), Proxy::before(short).unwrap());
    let url = format!(
        "zookeeper://127.0.0.1:{},127.0.0.1:{}?session=12s&request_timeout=1s&connect_timeout=4s",
        first.port(),
        second.port()
    );
    let (holder, other) = (client(&url).await, client(&format!("zookeeper://{long}?session=12s")).await);
    let raw = raw(&long.to_string()).await;
    second.set(Mood::Refuse);
    let guard = within("granted", SLACK, holder.acquire("shortened")).await.unwrap();
    until("renewed", SLACK, || async { guard.remaining() > SHORTEST / 2 }).await;
    let waiting = in_line(&raw, &other, "shortened").await;
    let told = watch(&guard);
    second.set(Mood::DropReplies);
    first.set(Mood::Refuse);
    let cut = Instant::now();
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    second.set(Mood::Refuse);
    let next = within("the waiter is served", SLACK, waiting).await.unwrap().unwrap();
    let granted = cut.elapsed();
    assert!(
        told.is_finished(),
        "granted after {granted:?} while the first still believes, for {:?}",
        guard.remaining()
    );
    println!("told after {:?}, granted after {granted:?}", told.join().unwrap() - cut);
    assert!(next.token() > guard.token());
    assert!(granted < Duration::from_secs(10), "the session was not shortened, so nothing was shown: {granted:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_not_heard_is_not_connected_to() {
    let ensemble = uneven("*");
    let (long, short) = (ensemble.members()[0].address(), ensemble.members()[2].address());
    let (first, second) = (Proxy::before(long).unwrap(), Proxy::before(short).unwrap());
    second.set(Mood::Refuse);
    let url = format!(
        "zookeeper://127.0.0.1:{},127.0.0.1:{}?session=5s&request_timeout=1s&connect_timeout=4s",
        first.port(),
        second.port()
    );
    let one = engine(&url).await.unwrap();
    assert_eq!(one.session_timeout(), Duration::from_secs(5));
    let holder = fencelock_core::LockClient::new(one).unwrap();
    let guard = holder.named("left out").ttl(Duration::from_secs(5)).acquire().await.unwrap();
    second.set(Mood::Honest);
    first.set(Mood::Refuse);
    let reason = within("the loss is told", SLACK, guard.lost()).await;
    assert!(matches!(reason, LossReason::Expired | LossReason::SessionEnded), "{reason:?}");
    assert!(!ensemble.members()[2].ask("cons").unwrap().contains("sid=0x"), "the session went over to it");
    // The next session asks again, and has its shorter time.
    let short = holder.named("left out").ttl(Duration::from_secs(1));
    let again = within("a new session", SLACK * 2, short.acquire()).await.unwrap();
    assert!(again.remaining() <= SHORTEST, "{:?}", again.remaining());
}

/// What a server says is asked again when a session comes back to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_comes_back_with_less_ends_the_session() {
    let mut server = ZooKeeper::start().unwrap();
    let url = format!("zookeeper://{}?session=30s&request_timeout=2s", server.address());
    let one = engine(&url).await.unwrap();
    let client =
        fencelock_core::LockClient::new(std::sync::Arc::<fencelock_zookeeper::ZooKeeperLock>::clone(&one)).unwrap();
    let guard = client.named("less").ttl(Duration::from_secs(1)).acquire().await.unwrap();
    assert!(guard.remaining() > Duration::from_secs(20));
    server.configure("maxSessionTimeout=2000").unwrap();
    server.server_mut().kill();
    server.restart().unwrap();
    let back = Instant::now();
    let reason = within("the loss is told", SLACK, guard.lost()).await;
    println!("told {reason:?} {:?} after the server was back", back.elapsed());
    assert_eq!(reason, LossReason::SessionEnded);
    let again = within("a new session", SLACK * 2, client.named("less").ttl(Duration::from_secs(1)).acquire());
    assert!(again.await.unwrap().is_held());
    assert_eq!(one.session_timeout(), SHORTEST);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_does_not_tell_leaves_the_margin_unknown() {
    let (all, silent) = (ZooKeeperSettings::default(), ZooKeeperSettings::default().with_words("srvr"));
    let mut ensemble = Ensemble::start_each(&[all.clone(), all, silent]).unwrap();
    let url = format!("zookeeper://{}?session=6s&connect_timeout=4s", ensemble.addresses());
    let unknown = client(&url).await.guarantees();
    assert!(unknown.rule_is("zookeeper.session", RuleOutcome::Unknown), "{:?}", unknown.rules());
    assert_eq!(unknown.level(), Some(Level::Advisory));
    assert_eq!(
        client(&format!("{url}&tick_time=100ms&sync_limit=4")).await.guarantees().level(),
        Some(Level::Replicated)
    );
    // Configured and told: the longer counts.
    let guard = client(&format!("{url}&tick_time=1s&sync_limit=3")).await.acquire("a").await.unwrap();
    assert!(guard.remaining() <= Duration::from_secs(2), "{:?}", guard.remaining());
    // Without it the others have told everything, and it is not connected to.
    ensemble.members_mut()[2].server_mut().kill();
    assert_eq!(client(&url).await.guarantees().level(), Some(Level::Replicated));
}

/// The deployment is asked again, and what was found before does not outlive it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_probe_tells_what_has_changed() {
    use fencelock_core::DistributedLock;
    let mut ensemble = Ensemble::start(3).unwrap();
    let url = format!("zookeeper://{}?session=6s&connect_timeout=4s&request_timeout=2s", ensemble.addresses());
    let engine = engine(&url).await.unwrap();
    assert_eq!(engine.guarantees().level(), Some(Level::Replicated));
    for member in ensemble.members_mut() {
        member.configure("syncLimit=100").unwrap();
        member.server_mut().kill();
    }
    ensemble.launch().unwrap();
    until("the change is seen", SLACK * 2, || async {
        engine.probe().await.is_ok_and(|found| found.rule_is("zookeeper.session", RuleOutcome::Refused))
    })
    .await;
    assert_eq!(engine.guarantees().level(), Some(Level::Advisory));
}
