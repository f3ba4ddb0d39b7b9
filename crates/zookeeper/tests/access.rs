//! Users, access, the root, the layout's version, servers that tell little.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs, reason = "a test")]

mod common;

use common::{client, engine, raw};
use fencelock_core::{ErrorKind, Level, RuleOutcome};
use fencelock_lab::{Ensemble, ZooKeeper, ZooKeeperSettings};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_authenticates_differently_is_denied() {
    let server = ZooKeeper::start().unwrap();
    let url = |user: &str| format!("zookeeper://{user}{}/private/locks?session=4s", server.address());
    let (one, two) = (client(&url("joe:s%3Aecret@")).await, client(&url("joe:s%3Aecret@")).await);
    let guard = one.acquire("a").await.unwrap();
    assert!(two.try_acquire("a").await.unwrap().is_none());
    for stranger in ["joe:wrong@", "ann:s%3Aecret@", ""] {
        let e = engine(&url(stranger)).await.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Denied, "{stranger}: {e}");
        assert!(!format!("{e:?}").contains("ecret"), "{e:?}");
    }
    guard.release().await.unwrap();
    two.acquire("a").await.unwrap().release().await.unwrap();
    // An open root in reach of all, whoever made it.
    let open = format!("zookeeper://joe:s%3Aecret@{}/open?session=4s&acl=open", server.address());
    client(&open).await.acquire("a").await.unwrap().release().await.unwrap();
    let anyone = format!("zookeeper://{}/open?session=4s", server.address());
    client(&anyone).await.acquire("a").await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_layout_is_refused() {
    let server = ZooKeeper::start().unwrap();
    let url = format!("zookeeper://{}?session=4s", server.address());
    engine(&url).await.unwrap();
    let raw = raw(&server.address().to_string()).await;
    assert_eq!(raw.get_data("/fencelock/%layout").await.unwrap().0, b"1");
    raw.set_data("/fencelock/%layout", b"2", None).await.unwrap();
    let e = engine(&url).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Refused);
    assert!(e.message().contains("layout 2"), "{e}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ttl_is_that_of_the_session_or_refused() {
    let server = ZooKeeper::start().unwrap();
    let client = client(&format!("zookeeper://{}?session=4s", server.address())).await;
    let short = client.named("a").ttl(Duration::from_millis(50)).acquire().await.unwrap();
    assert!(short.remaining() > Duration::from_secs(1), "granted the session's: {:?}", short.remaining());
    let e = client.named("b").ttl(Duration::from_secs(5)).acquire().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidConfig);
    assert!(e.message().contains("session"), "{e}");
    let delayed = client.named("c").ttl(Duration::from_secs(1)).lock_delay(Duration::from_secs(1));
    let guard = delayed.acquire().await.unwrap();
    assert!(guard.remaining() <= Duration::from_secs(3), "the delay is part of the session");
    let e =
        client.named("d").ttl(Duration::from_secs(1)).lock_delay(Duration::from_secs(2)).acquire().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidConfig);
}

/// As servers are by default: `srvr` alone is answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_servers_do_not_tell_is_configured() {
    let ensemble = Ensemble::start_with(3, &ZooKeeperSettings::default().with_words("srvr")).unwrap();
    let url = format!("zookeeper://{}?session=6s", ensemble.addresses());
    let silent = client(&url).await;
    let guarantees = silent.guarantees();
    assert_eq!(guarantees.level(), Some(Level::Advisory));
    assert!(guarantees.rule_is("zookeeper.session", RuleOutcome::Unknown));
    assert!(guarantees.rule_is("zookeeper.voters", RuleOutcome::Proved));
    let e = guarantees.require(Level::Leased).unwrap_err();
    assert!(e.message().contains("sync_limit"), "{e}");
    let told = client(&format!("{url}&tick_time=100ms&sync_limit=4")).await;
    assert_eq!(told.guarantees().level(), Some(Level::Replicated));
    let guard = told.acquire("a").await.unwrap();
    assert!(guard.remaining() <= Duration::from_millis(5_500), "{:?}", guard.remaining());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_root_is_made_by_many_at_once() {
    let server = ZooKeeper::start().unwrap();
    let url = format!("zookeeper://{}/some/where/new?session=4s", server.address());
    let mut connecting = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let url = url.clone();
        connecting.spawn(async move { client(&url).await.acquire("a").await.unwrap().release().await.unwrap() });
    }
    while let Some(done) = connecting.join_next().await {
        done.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_begin_above_the_base() {
    let server = ZooKeeper::start().unwrap();
    let base = 1_u64 << 60;
    let client = client(&format!("zookeeper://{}?session=4s&token_base={base}", server.address())).await;
    let guard = client.acquire("a").await.unwrap();
    assert!(guard.token().get() > base);
    assert_eq!(client.inspect("a").await.unwrap().unwrap().token, guard.token());
}

#[tokio::test]
async fn no_server_is_unavailable_in_time() {
    let port = fencelock_lab::free_port();
    let started = std::time::Instant::now();
    let e = engine(&format!("zookeeper://127.0.0.1:{port}?connect_timeout=500ms")).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    assert!(started.elapsed() < Duration::from_secs(10));
}
