//! A node's creation is lost where a follower and its leader do not hear each other.
//! Servers in network namespaces; needs root.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, missing_docs, reason = "a test")]

mod common;

use common::{SLACK, client, nodes, raw, until, within};
use fencelock_core::{ErrorKind, LockClient};
use fencelock_lab::{Ensemble, Mood, Network, Proxy, ZooKeeperSettings};
use fencelock_zookeeper::zookeeper_client::Client;
use std::time::Duration;

/// A leader and two followers, each follower behind a proxy of its own.
struct Bench {
    network: Network,
    _ensemble: Ensemble,
    leader: usize,
    followers: [usize; 2],
    proxies: [Proxy; 2],
    raw: Client,
    other: LockClient,
}

impl Bench {
    async fn new() -> Self {
        let network = Network::of(3).unwrap();
        // A follower goes on for 6 s without its leader.
        let settings = ZooKeeperSettings::default().with_tick(300).with_sync_limit(20);
        let ensemble = Ensemble::start_in(&network, &settings).unwrap();
        let leader = ensemble.wait_for_leader().unwrap();
        let followers = [(leader + 1) % 3, (leader + 2) % 3];
        let proxies = followers.map(|at| Proxy::before(ensemble.members()[at].address()).unwrap());
        let at_leader = ensemble.members()[leader].address().to_string();
        let (raw, other) = (raw(&at_leader).await, client(&format!("zookeeper://{at_leader}?session=15s")).await);
        Self { network, _ensemble: ensemble, leader, followers, proxies, raw, other }
    }

    /// A client at the first follower, that knows of both.
    async fn client(&self) -> LockClient {
        let [first, second] = &self.proxies;
        let url = format!(
            "zookeeper://127.0.0.1:{},127.0.0.1:{}?session=15s&request_timeout=1s&connect_timeout=8s",
            first.port(),
            second.port()
        );
        let client = client(&url).await;
        second.set(Mood::Refuse);
        until("it is at the first", SLACK, || async { client.try_acquire("warm").await.is_ok_and(|g| g.is_some()) })
            .await;
        client
    }

    /// One node, the guard's own, or none; and whoever waits is served.
    async fn judge(&self, client: &LockClient, name: &str, outcome: fencelock_core::Result<fencelock_core::LockGuard>) {
        match outcome {
            Ok(guard) => {
                // Long enough for whatever is on its way.
                tokio::time::sleep(Duration::from_millis(1_500)).await;
                let there = nodes(&self.raw, name).await;
                assert_eq!(there.len(), 1, "{there:?}");
                assert!(guard.evidence().get("path").unwrap().ends_with(&there[0]), "{there:?}");
                assert!(self.other.try_acquire(name).await.unwrap().is_none(), "held by two");
                if let Err(e) = within("a release ends", SLACK, guard.release()).await {
                    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
                }
            }
            Err(e) => assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}"),
        }
        until("nothing is left", SLACK, || async { nodes(&self.raw, name).await.is_empty() }).await;
        within("nobody is blocked", SLACK, self.other.acquire(name)).await.unwrap().release().await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(nodes(&self.raw, name).await.is_empty(), "a node came late");
        until("nothing is pending", SLACK, || async { client.pending() == 0 }).await;
    }
}

/// Applied, unheard; and the server that the session goes over to has not heard of it yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn applied_and_not_yet_known_to_the_follower_that_is_asked() {
    let bench = Bench::new().await;
    let cut = bench.client().await;
    for (round, name) in ["one", "two", "three"].into_iter().enumerate() {
        // A new name would need an answer before its node could be made.
        bench.other.acquire(name).await.unwrap().release().await.unwrap();
        let [from, to] = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        bench.network.separate(bench.followers[to], bench.leader).unwrap();
        bench.proxies[from].set(Mood::DropReplies);
        let lock = cut.named(name);
        let acquiring = tokio::spawn(async move { lock.acquire().await });
        until("applied", SLACK, || async { nodes(&bench.raw, name).await.len() == 1 }).await;
        bench.proxies[to].set(Mood::Honest);
        bench.proxies[from].set(Mood::Refuse);
        // The session goes over while the other still lags.
        tokio::time::sleep(Duration::from_millis(400)).await;
        bench.network.reunite(bench.followers[to], bench.leader).unwrap();
        let outcome = within("the acquire ends", SLACK * 2, acquiring).await.unwrap();
        println!("{name}: {}", if outcome.is_ok() { "granted" } else { "given up" });
        bench.judge(&cut, name, outcome).await;
    }
}

/// Not applied yet: it is on its way from a follower that the session has left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_its_way_from_a_follower_that_the_session_has_left() {
    let bench = Bench::new().await;
    let cut = bench.client().await;
    for (round, name) in ["known", "new", "again"].into_iter().enumerate() {
        if name == "known" {
            bench.other.acquire(name).await.unwrap().release().await.unwrap();
        }
        let [from, to] = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        bench.network.separate(bench.followers[from], bench.leader).unwrap();
        let lock = cut.named(name);
        let acquiring = tokio::spawn(async move { lock.acquire().await });
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(nodes(&bench.raw, name).await.is_empty(), "it was applied at once, so nothing is shown");
        bench.proxies[to].set(Mood::Honest);
        bench.proxies[from].set(Mood::Refuse);
        let outcome = within("the acquire ends", SLACK * 2, acquiring).await.unwrap();
        println!("{name}: {}", if outcome.is_ok() { "granted" } else { "given up" });
        // What was on its way arrives now, after the session has gone over.
        bench.network.reunite(bench.followers[from], bench.leader).unwrap();
        bench.judge(&cut, name, outcome).await;
    }
}
