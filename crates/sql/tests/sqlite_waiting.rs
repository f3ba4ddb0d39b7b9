//! Waiting across clients of one file, and a file that another program blocks.
#![cfg(feature = "sqlite")]
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, reason = "tests")]

mod sqlite;

use fencelock_core::{Capability, DistributedLock, ErrorKind, LockClient};
use fencelock_sql::SqlLock;
use sqlite::*;
use std::sync::Arc;
use std::time::Instant;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_wakes_a_waiter_of_another_client() {
    let file = File::new();
    let (one, other) = (file.client().await, file.client().await);
    assert!(one.guarantees().has(Capability::NotifiedWaiting));
    let mut waits = Vec::new();
    for _ in 0..20 {
        let guard = one.acquire("a").await.unwrap();
        let waiter = other.clone();
        let waiting = tokio::spawn(async move { (waiter.acquire("a").await.unwrap(), Instant::now()) });
        tokio::time::sleep(ms(40)).await;
        let released = Instant::now();
        guard.release().await.unwrap();
        let (next, woken) = waiting.await.unwrap();
        waits.push(woken.duration_since(released));
        next.release().await.unwrap();
    }
    waits.sort_unstable();
    println!("from release to the next holder: median {:?}, longest {:?}", waits[10], waits[19]);
    // By itself it would look 5 s after it began to wait.
    assert!(waits[10] < ms(2_000), "{waits:?}");
}

#[tokio::test]
async fn a_busy_file_does_not_make_waiters_spin() {
    let file = File::new();
    let (holder, other) = (file.client().await, file.client().await);
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let (mut held, mut waiting) = (Vec::new(), Vec::new());
    let names: Vec<_> = (0..32).map(|at| format!("held/{at}")).collect();
    for name in &names {
        held.push(holder.acquire(name).await.unwrap());
    }
    let before = threads();
    for name in names {
        let waiter = other.clone();
        waiting.push(tokio::spawn(async move { waiter.acquire(&name).await }));
    }
    tokio::time::sleep(ms(300)).await;
    // Some threads are other tests' of this program.
    let grown = threads().saturating_sub(before);
    assert!(grown < 16, "one thread for all 32 who wait: {grown} more");
    for _ in 0..50 {
        holder.acquire("z").await.unwrap().release().await.unwrap();
    }
    assert!(waiting.iter().all(|waiting| !waiting.is_finished()));
    for guard in held {
        guard.release().await.unwrap();
    }
    for waiting in waiting {
        waiting.await.unwrap().unwrap().release().await.unwrap();
    }
    other.close().await;
}

#[tokio::test]
async fn a_file_that_another_writer_blocks_is_unavailable_in_time() {
    let file = File::new();
    let config = file.config().with_request_timeout(ms(8_000)).with_busy_timeout(ms(100));
    let engine = SqlLock::sqlite(config).await.unwrap();
    let held = granted(&engine, &claim("held", ms(60_000))).await;
    let mut writer = file.raw().await;
    sqlx::query("BEGIN IMMEDIATE").execute(&mut writer).await.unwrap();

    let mine = claim("a", ms(1000));
    let started = Instant::now();
    let e = engine.try_acquire(&mine).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    assert!(started.elapsed() >= ms(90) && started.elapsed() < ms(8_000), "{:?}", started.elapsed());
    assert!(mine.was_sent() && !mine.is_unanswered(), "busy is a definite no");
    assert_eq!(held.lease.release().await.unwrap_err().kind(), ErrorKind::Unavailable);

    let client = LockClient::new(Arc::<SqlLock>::clone(&engine)).unwrap();
    let e = client.named("a").wait_at_most(ms(1_000)).acquire().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    sqlx::query("ROLLBACK").execute(&mut writer).await.unwrap();
    client.named("a").wait_at_most(ms(20_000)).acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_waiter_gets_through_once_the_writer_is_done() {
    let file = File::new();
    let client = LockClient::new(SqlLock::sqlite(file.config()).await.unwrap()).unwrap();
    let mut writer = file.raw().await;
    sqlx::query("BEGIN IMMEDIATE").execute(&mut writer).await.unwrap();
    let waiting = tokio::spawn(async move { client.acquire("a").await });
    tokio::time::sleep(ms(700)).await;
    assert!(!waiting.is_finished());
    sqlx::query("COMMIT").execute(&mut writer).await.unwrap();
    let guard = tokio::time::timeout(ms(20_000), waiting).await.unwrap().unwrap().unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn renewals_doubt_while_the_file_is_blocked_and_recover_or_lose_in_time() {
    let file = File::new();
    let config = file.config().with_request_timeout(ms(1_000)).with_busy_timeout(ms(50));
    let client = LockClient::new(SqlLock::sqlite(config).await.unwrap()).unwrap();
    let guard = client.named("a").ttl(ms(4_000)).acquire().await.unwrap();
    let mut writer = file.raw().await;
    sqlx::query("BEGIN IMMEDIATE").execute(&mut writer).await.unwrap();
    until("in doubt", async || guard.in_jeopardy()).await;
    assert!(guard.is_held());
    sqlx::query("ROLLBACK").execute(&mut writer).await.unwrap();
    renewed([&guard]).await;
    until("no more in doubt", async || guard.is_held() && !guard.in_jeopardy()).await;

    sqlx::query("BEGIN IMMEDIATE").execute(&mut writer).await.unwrap();
    let started = Instant::now();
    assert_eq!(guard.lost().await, fencelock_core::LossReason::Expired);
    assert!(started.elapsed() < ms(10_000), "{:?}", started.elapsed());
}

#[tokio::test]
async fn waiters_of_a_held_lock_do_not_want_the_write_lock() {
    let file = File::new();
    let config = file.config().with_busy_timeout(ms(50));
    let engine = SqlLock::sqlite(config).await.unwrap();
    let _held = granted(&engine, &claim("a", ms(60_000))).await;
    let waiter = claim("a", ms(1000));
    contended(&engine, &waiter).await;
    waiter.met(fencelock_core::Obstacle::Held(None));
    let mut writer = file.raw().await;
    sqlx::query("BEGIN IMMEDIATE").execute(&mut writer).await.unwrap();
    for _ in 0..5 {
        contended(&engine, &waiter).await;
    }
    assert!(engine.inspect(waiter.name()).await.unwrap().is_some());
}
