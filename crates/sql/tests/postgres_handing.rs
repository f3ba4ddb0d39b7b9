//! PostgreSQL: a release that hands the lock on by itself.
#![cfg(feature = "postgres")]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests")]

mod server;

use fencelock_core::{DistributedLock as _, LockClient};
use fencelock_lab::Postgres;
use server::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A server whose log has every statement of ours.
fn logging() -> Pg {
    Pg(Postgres::start_with(["fsync=off", "log_statement=all", "log_line_prefix=%a "]).unwrap())
}

/// How often each kind of statement was sent: acquires, looks, and the rest, which are releases for the most part.
fn sent(db: &Pg) -> usize {
    let log = std::fs::read_to_string(db.0.server().folder().join("log")).unwrap();
    log.lines().filter(|line| line.starts_with("fencelock LOG:  execute")).count()
}

async fn once(client: LockClient) {
    client.acquire("a").await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handover_is_two_statements() {
    const EACH: usize = 100;
    let db = logging();
    let (inside, newest, mut tasks) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicI64::new(0)), tokio::task::JoinSet::new());
    let mut clients = Vec::new();
    for _ in 0..8 {
        let client = db.client().await;
        client.named("a").ttl(ms(30_000)).acquire().await.unwrap().release().await.unwrap();
        clients.push(client);
    }
    // Each waits once, and listens from then on.
    let first = clients[0].named("a").ttl(ms(30_000)).acquire().await.unwrap();
    let waiting: Vec<_> = clients[1..].iter().map(|client| tokio::spawn(once(client.clone()))).collect();
    tokio::time::sleep(ms(500)).await;
    first.release().await.unwrap();
    for waiting in waiting {
        waiting.await.unwrap();
    }
    let (before, began) = (sent(&db), Instant::now());
    for client in clients {
        let (inside, newest) = (Arc::clone(&inside), Arc::clone(&newest));
        tasks.spawn(async move {
            for _ in 0..EACH {
                let guard = client.named("a").ttl(ms(30_000)).wait_at_most(ms(60_000)).acquire().await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold it");
                assert!(guard.token().as_i64() > newest.swap(guard.token().as_i64(), Ordering::SeqCst));
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.release().await.unwrap();
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let each = (sent(&db) - before) as f64 / (8 * EACH) as f64;
    println!("{each:.2} statements a handover, {:?} each", began.elapsed() / (8 * EACH as u32));
    assert!(each <= 2.2, "{each:.2}");
}
