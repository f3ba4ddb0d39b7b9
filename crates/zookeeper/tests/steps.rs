//! The connection is cut at every message of acquire and release, in both directions,
//! with that message lost and with it delivered.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    missing_docs,
    reason = "a test"
)]

mod common;
#[path = "common/frames.rs"]
mod frames;

use common::{SLACK, client, in_line, nodes, raw, until, within};
use fencelock_core::{ErrorKind, LockClient, LockGuard};
use fencelock_lab::ZooKeeper;
use fencelock_zookeeper::zookeeper_client::Client;
use frames::{Cut, Frames, Way};
use std::time::{Duration, Instant};

/// No operation exchanges as many messages as this, one way.
const MOST: usize = 40;

struct Bench {
    _server: ZooKeeper,
    frames: Frames,
    cut: LockClient,
    other: LockClient,
    raw: Client,
}

impl Bench {
    async fn new() -> Self {
        let server = ZooKeeper::start().unwrap();
        let frames = Frames::before(server.address());
        let through = format!("zookeeper://127.0.0.1:{}?session=20s&request_timeout=1s", frames.port);
        let straight = format!("zookeeper://{}?session=20s", server.address());
        let (cut, other) = (client(&through).await, client(&straight).await);
        let raw = raw(&server.address().to_string()).await;
        Self { _server: server, frames, cut, other, raw }
    }

    /// Runs `operation` with the cut at every step of it, until it says that it came to its end uncut.
    async fn at_every_step(&self, what: &str, operation: impl AsyncFn(String, Cut) -> bool) {
        let began = Instant::now();
        let mut steps = 0;
        for way in [Way::Request, Way::Answer] {
            for arrives in [false, true] {
                for after in 0..MOST {
                    let cut = Cut { way, after, arrives };
                    let name = format!("{}{steps}", what.replace(' ', ""));
                    let beyond = operation(name.clone(), cut).await;
                    until("nothing is left", Duration::from_secs(16), || async {
                        nodes(&self.raw, &name).await.is_empty()
                    })
                    .await;
                    let free = within("nobody is blocked", SLACK, self.other.try_acquire(&name)).await.unwrap();
                    free.unwrap_or_else(|| panic!("{what}, {cut:?}: blocked")).release().await.unwrap();
                    if beyond {
                        break;
                    }
                    steps += 1;
                    assert!(after + 1 < MOST, "{what}: no end");
                }
            }
        }
        println!("{what}: cut at {steps} steps in {:?}", began.elapsed());
        assert!(steps >= 4, "{what}: hardly anything was cut");
    }

    /// What is granted has one node, its own, and is nobody else's.
    async fn is_held(&self, name: &str, cut: Cut, guard: &LockGuard) {
        let there = nodes(&self.raw, name).await;
        assert_eq!(there.len(), 1, "{cut:?}: {there:?}");
        assert!(guard.evidence().get("path").unwrap().ends_with(&there[0]), "{cut:?}: {there:?}");
        assert!(guard.is_held(), "{cut:?}");
        assert!(self.other.try_acquire(name).await.unwrap().is_none(), "{cut:?}: held by two");
    }
}

/// The cut may come as late as this.
async fn give_back(guard: LockGuard) {
    if let Err(e) = within("a release ends", SLACK, guard.release()).await {
        assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    }
}

async fn known(bench: &Bench, name: &str) {
    bench.other.acquire(name).await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_an_acquire() {
    let bench = Bench::new().await;
    for what in ["acquire of a new name", "acquire of a known name"] {
        let operation = async |name: String, cut| {
            if what.contains("known") {
                known(&bench, &name).await;
            }
            bench.frames.arm(cut);
            let guard = within("granted", SLACK, bench.cut.acquire(&name)).await.unwrap();
            let beyond = bench.frames.disarm();
            bench.is_held(&name, cut, &guard).await;
            give_back(guard).await;
            beyond
        };
        bench.at_every_step(what, operation).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_try() {
    let bench = Bench::new().await;
    for what in ["try of a free lock", "try of a held lock"] {
        let operation = async |name: String, cut| {
            let held = if what.contains("held") {
                Some(bench.other.acquire(&name).await.unwrap())
            } else {
                known(&bench, &name).await;
                None
            };
            bench.frames.arm(cut);
            let tried = within("a try ends", SLACK, bench.cut.try_acquire(&name)).await;
            let beyond = bench.frames.disarm();
            match tried {
                Ok(Some(guard)) => {
                    assert!(held.is_none(), "{cut:?}: held by two");
                    bench.is_held(&name, cut, &guard).await;
                    give_back(guard).await;
                }
                Ok(None) => {
                    assert!(held.is_some(), "{cut:?}: contended with nobody");
                    // Contended is answered only when no trace is left.
                    assert_eq!(nodes(&bench.raw, &name).await.len(), 1, "{cut:?}");
                }
                Err(e) => assert_eq!(e.kind(), ErrorKind::Unavailable, "{cut:?}: {e}"),
            }
            if let Some(held) = held {
                assert!(held.is_held());
                held.release().await.unwrap();
            }
            beyond
        };
        bench.at_every_step(what, operation).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_wait() {
    let bench = Bench::new().await;
    let operation = async |name: String, cut| {
        let held = bench.other.acquire(&name).await.unwrap();
        bench.frames.arm(cut);
        let lock = bench.cut.named(&name);
        let waiting = tokio::spawn(async move { lock.acquire().await });
        until("it has a place", SLACK, || async { nodes(&bench.raw, &name).await.len() > 1 }).await;
        let behind = in_line(&bench.raw, &bench.other, &name).await;
        held.release().await.unwrap();
        let next = within("the waiter is served", SLACK, waiting).await.unwrap().unwrap();
        let beyond = bench.frames.disarm();
        let there = nodes(&bench.raw, &name).await;
        assert_eq!(there.len(), 2, "{cut:?}: {there:?}");
        assert!(next.is_held() && !behind.is_finished(), "{cut:?}: held by two, or out of order");
        give_back(next).await;
        within("the one behind", SLACK, behind).await.unwrap().unwrap().release().await.unwrap();
        beyond
    };
    bench.at_every_step("a wait and its grant", operation).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_release() {
    let bench = Bench::new().await;
    let operation = async |name: String, cut| {
        let guard = within("granted", SLACK, bench.cut.acquire(&name)).await.unwrap();
        bench.frames.arm(cut);
        give_back(guard).await;
        bench.frames.disarm()
    };
    bench.at_every_step("a release", operation).await;
}
