//! Calls dropped anywhere leave nothing behind on a real file either.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    missing_docs,
    reason = "a test"
)]

use fencelock::LockClient;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

async fn connect(directory: &Path) -> LockClient {
    let file = directory.join("locks.db");
    fencelock::connect(&format!("sqlite:{}?request_timeout=30s&busy_timeout=20s", file.display())).await.unwrap()
}

async fn drained(client: &LockClient) {
    tokio::time::timeout(Duration::from_secs(60), async {
        while client.pending() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("undone within a minute");
    assert_eq!(client.held(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_a_thousand_random_instants() {
    let directory = tempfile::tempdir().unwrap();
    let (a, b) = (connect(directory.path()).await, connect(directory.path()).await);
    let start = Instant::now();
    a.acquire("x").await.unwrap().release().await.unwrap();
    let usual = start.elapsed().min(Duration::from_millis(20));
    let mut granted = 0;
    for round in 0..1_000 {
        let held = if round % 7 == 0 { b.try_acquire("x").await.unwrap() } else { None };
        match tokio::time::timeout(usual.mul_f64(fastrand::f64() * 1.2), a.acquire("x")).await {
            Ok(guard) => {
                granted += 1;
                drop(guard.unwrap());
            }
            Err(_) => drop(held),
        }
    }
    println!("{granted} of 1000 were granted before they were cut");
    assert!(granted < 1_000);
    drained(&a).await;
    drained(&b).await;
    assert!(a.list("").await.unwrap().is_empty());
    b.try_acquire("x").await.unwrap().expect("free").release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_soak_of_five_thousand_tasks() {
    let directory = tempfile::tempdir().unwrap();
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(connect(directory.path()).await);
    }
    let clients = Arc::new(clients);
    let (inside, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..5_000_usize {
        let lock = clients.get(task % 4).unwrap().named(&format!("name {}", task % 9)).wait_forever();
        let (inside, done) = (Arc::clone(&inside), Arc::clone(&done));
        tasks.spawn(async move {
            let counted = task % 9 == 0;
            let work = async {
                let guard = lock.acquire().await.unwrap();
                if counted {
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                }
                done.fetch_add(1, Ordering::SeqCst);
                if task % 2 == 0 {
                    guard.release().await.unwrap();
                }
            };
            // One name is never cut, so that its counter is only left in order.
            if counted {
                work.await;
            } else {
                let _ = tokio::time::timeout(Duration::from_millis(fastrand::u64(0..3_000)), work).await;
            }
        });
    }
    let start = Instant::now();
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    println!("{} of 5000 tasks held their lock, in {:?}", done.load(Ordering::SeqCst), start.elapsed());
    for client in clients.iter() {
        drained(client).await;
    }
    assert!(clients.first().unwrap().list("").await.unwrap().is_empty());
}
