//! Fifty wait, one is woken.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, missing_docs, reason = "a test")]

mod common;

use common::{SLACK, client, in_line, raw, until, within};
use fencelock_lab::ZooKeeper;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::span;

static WOKEN: AtomicUsize = AtomicUsize::new(0);

/// Counts the events by which waiters say that a watch of theirs has fired.
struct Counter(AtomicU64);

struct IsWoken(bool);

impl Visit for IsWoken {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0 |= field.name() == "event" && value == "woken";
    }
    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

impl tracing::Subscriber for Counter {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "fencelock"
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(self.0.fetch_add(1, Ordering::SeqCst) + 1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let mut woken = IsWoken(false);
        event.record(&mut woken);
        WOKEN.fetch_add(usize::from(woken.0), Ordering::SeqCst);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

fn watches(server: &ZooKeeper) -> usize {
    let answer = server.ask("wchs").unwrap();
    answer.lines().find_map(|line| line.strip_prefix("Total watches:")).unwrap().trim().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_release_wakes_one_of_fifty() {
    tracing::subscriber::set_global_default(Counter(AtomicU64::new(0))).unwrap();
    let server = ZooKeeper::start().unwrap();
    let url = format!("zookeeper://{}?session=10s", server.address());
    let raw = raw(&server.address().to_string()).await;
    let mut clients = Vec::new();
    for _ in 0..10 {
        clients.push(client(&url).await);
    }
    let holder = client(&url).await;
    let guard = holder.acquire("herd").await.unwrap();
    let mut waiting = std::collections::VecDeque::new();
    for place in 0..50 {
        waiting.push_back(in_line(&raw, &clients[place % 10], "herd").await);
    }
    // One on the holder's node and one by each waiter on the node before its own.
    until("all watch", SLACK, || async { watches(&server) == 51 }).await;
    assert_eq!(WOKEN.load(Ordering::SeqCst), 0);
    guard.release().await.unwrap();
    let next = within("the first is served", SLACK, waiting.pop_front().unwrap()).await.unwrap().unwrap();
    // Time for whoever else might have been woken.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (woken, after) = (WOKEN.load(Ordering::SeqCst), watches(&server));
    println!("50 waiters, 1 release: {woken} woken; watches at the server: 51 before, {after} after");
    assert_eq!(woken, 1);
    assert_eq!(after, 50);
    drop(next);
    for waiter in waiting {
        within("every waiter is served", SLACK, waiter).await.unwrap().unwrap().release().await.unwrap();
    }
    assert_eq!(WOKEN.load(Ordering::SeqCst), 50);
}
