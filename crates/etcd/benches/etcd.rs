//! Acquire and release beside the same two transactions sent raw, and a handover between two clients.
//!
//! `cargo bench -p fencelock-etcd`; it takes about half a minute and starts its own server.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    missing_docs,
    reason = "a benchmark"
)]

#[path = "../tests/common/mod.rs"]
mod common;

use common::{client, plain};
use fencelock_core::LockClient;
use fencelock_etcd::etcd_client::{
    Client, Compare, CompareOp, GetOptions, PutOptions, SortOrder, SortTarget, Txn, TxnOp,
};
use fencelock_lab::Etcd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_secs(1);

/// The same two transactions, with keys of the same shape, through the same library on one connection.
#[derive(Clone)]
struct Raw {
    client: Client,
    lease: i64,
}

impl Raw {
    async fn connect(etcd: &Etcd) -> Self {
        let mut client = plain(etcd).await;
        let lease = client.lease_grant(3_600, None).await.unwrap().id();
        Self { client, lease }
    }

    async fn once(&mut self, task: usize) {
        let id = format!("{:032x}", fastrand::u128(..));
        let (queue, void) = (format!("raw/l/bench%2F{task}/"), format!("raw/v/{id}"));
        let place = format!("{queue}{id}");
        let absent = |key: &str| Compare::create_revision(key, CompareOp::Equal, 0);
        let newest = GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Descend).with_limit(2);
        let newest = TxnOp::get(queue.as_str(), Some(newest));
        let under = Some(PutOptions::new().with_lease(self.lease));
        let acquire = Txn::new()
            .when([absent(&void), absent(&place)])
            .and_then([TxnOp::put(place.as_str(), "holder=bench%3A1", under), newest]);
        let acquired = self.client.txn(acquire).await.unwrap();
        assert!(acquired.succeeded());
        let mine = Compare::mod_revision(place.as_str(), CompareOp::Equal, acquired.header().unwrap().revision());
        let free = Txn::new().when([mine]).and_then([TxnOp::delete(place, None)]);
        assert!(self.client.txn(free).await.unwrap().succeeded());
    }
}

/// How many acquire-release pairs a second so many tasks make.
async fn rate<F: Future<Output = ()> + Send + 'static>(
    tasks: usize,
    work: impl Fn(usize, Instant, Arc<AtomicU64>) -> F,
) -> f64 {
    let done = Arc::new(AtomicU64::new(0));
    let started = Instant::now();
    let mut running = JoinSet::new();
    for task in 0..tasks {
        running.spawn(work(task, started + ROUND, Arc::clone(&done)));
    }
    while running.join_next().await.is_some() {}
    done.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64()
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

async fn beside_raw(client: &LockClient, raw: &Raw, tasks: usize) {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let ours_now = rate(tasks, |task, end, done| {
            let lock = client.named(&format!("bench/{task}"));
            async move {
                while Instant::now() < end {
                    lock.acquire().await.unwrap().release().await.unwrap();
                    done.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        ours.push(ours_now.await);
        let raw_now = rate(tasks, |task, end, done| {
            let mut raw = raw.clone();
            async move {
                while Instant::now() < end {
                    raw.once(task).await;
                    done.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        theirs.push(raw_now.await);
    }
    let (ours, theirs) = (median(ours), median(theirs));
    println!(
        "acquire + release, {tasks} tasks on one client: {ours:.0} a second, raw {theirs:.0}: throughput {:.2} of raw, \
         latency {:.2} of raw",
        ours / theirs,
        theirs / ours
    );
}

/// From before a release to the grant in another client.
async fn handover(etcd: &Etcd) {
    let (one, other) = (client(etcd).await, client(etcd).await);
    let mut times = Vec::new();
    for _ in 0..200 {
        let guard = one.acquire("handed over").await.unwrap();
        let lock = other.named("handed over");
        let waiting = tokio::spawn(async move {
            let next = lock.acquire().await.unwrap();
            (Instant::now(), next)
        });
        tokio::time::sleep(Duration::from_millis(10)).await;
        let released = Instant::now();
        guard.release().await.unwrap();
        let (granted, next) = waiting.await.unwrap();
        times.push((granted - released).as_secs_f64() * 1e3);
        next.release().await.unwrap();
    }
    times.sort_by(f64::total_cmp);
    println!("handover to another client: median {:.2} ms, 99 of 100 within {:.2} ms", times[100], times[197]);
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let etcd = Etcd::start().unwrap();
    let (client, raw) = (client(&etcd).await, Raw::connect(&etcd).await);
    for tasks in [1, 64] {
        beside_raw(&client, &raw, tasks).await;
    }
    handover(&etcd).await;
}
