//! Locks inside the caller's own transaction in a SQLite file, and purging.
#![cfg(feature = "sqlite")]
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "tests"
)]

mod sqlite;

use fencelock_core::{DistributedLock as _, ErrorKind, LockClient};
use fencelock_sql::{AcquireIn as _, SqlLock};
use sqlite::*;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};
use sqlx::{ConnectOptions as _, Row as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

async fn pool(file: &File) -> SqlitePool {
    let options = SqliteConnectOptions::new().filename(&file.path).busy_timeout(Duration::from_secs(20));
    SqlitePoolOptions::new().max_connections(8).connect_with(options.disable_statement_logging()).await.unwrap()
}

async fn number(file: &File, sql: &'static str) -> i64 {
    sqlx::query(sql).fetch_all(&mut file.raw().await).await.unwrap()[0].get(0)
}

#[tokio::test]
async fn it_commits_with_the_data() {
    let file = File::new();
    let engine = file.engine().await;
    let pool = pool(&file).await;
    file.run("CREATE TABLE paid (id INTEGER PRIMARY KEY, token INTEGER)").await;
    let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let first = engine.acquire_in(&mut transaction, "orders/1").await.unwrap().unwrap();
    let insert = sqlx::query("INSERT INTO paid VALUES (1, ?1)").bind(first.token().as_i64());
    insert.execute(&mut *transaction).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(number(&file, "SELECT token FROM paid").await, first.token().as_i64());

    let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let second = engine.acquire_in(&mut transaction, "orders/1").await.unwrap().unwrap();
    assert!(second.token() > first.token());
    transaction.rollback().await.unwrap();

    let lease = granted(&engine, &claim("orders/1", ms(60_000))).await;
    assert!(lease.token > first.token(), "freed by the commit and by the rollback");
    let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
    assert!(engine.acquire_in(&mut transaction, "orders/1").await.unwrap().is_none(), "somebody has it on a lease");
    transaction.rollback().await.unwrap();
    lease.lease.release().await.unwrap();
    let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let third = engine.acquire_in(&mut transaction, "orders/1").await.unwrap().unwrap();
    assert!(third.token() > lease.token);
    transaction.commit().await.unwrap();
    assert!(engine.inspect(&fencelock_core::LockName::new("orders/1").unwrap()).await.unwrap().is_none());
    let mut transaction = pool.begin().await.unwrap();
    assert_eq!(engine.acquire_in(&mut transaction, "").await.unwrap_err().kind(), ErrorKind::InvalidName);
}

/// One that is held in another container, on a clock that nobody here can read, is not taken.
#[tokio::test]
async fn a_lease_on_another_clock_is_respected() {
    let file = File::new();
    let engine = file.engine().await;
    granted(&engine, &claim("a", ms(60_000))).await;
    file.run("UPDATE fencelock_locks SET boot_id = 'another boot', expires_at = 1").await;
    let mut transaction = pool(&file).await.begin_with("BEGIN IMMEDIATE").await.unwrap();
    assert!(engine.acquire_in(&mut transaction, "a").await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_update_is_lost() {
    let file = File::new();
    let engine = file.engine().await;
    file.run("CREATE TABLE counter (n INTEGER)").await;
    file.run("INSERT INTO counter VALUES (0)").await;
    let pool = pool(&file).await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (engine, pool) = (Arc::<SqlLock>::clone(&engine), pool.clone());
        tasks.spawn(async move {
            for _ in 0..20 {
                let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
                let _hold = engine.acquire_in(&mut transaction, "counter").await.unwrap().unwrap();
                let row = sqlx::query("SELECT n FROM counter").fetch_all(&mut *transaction).await.unwrap();
                let n: i64 = row[0].get(0);
                tokio::task::yield_now().await;
                sqlx::query("UPDATE counter SET n = ?1").bind(n + 1).execute(&mut *transaction).await.unwrap();
                transaction.commit().await.unwrap();
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(number(&file, "SELECT n FROM counter").await, 80);
}

/// It blocks every writer of the file, as the documentation says: they are not served, and go on after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_beside_an_open_one_wait_for_the_file() {
    let file = File::new();
    let engine = SqlLock::sqlite(file.config()).await.unwrap();
    let client = LockClient::new(SqlLock::sqlite(file.config()).await.unwrap()).unwrap();
    let beside = client.named("other").ttl(ms(8_000)).acquire().await.unwrap();
    let pool = pool(&file).await;
    let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let hold = engine.acquire_in(&mut transaction, "a").await.unwrap().unwrap();
    let started = Instant::now();
    let e = client.named("a").wait_at_most(ms(2_500)).acquire().await.unwrap_err();
    println!("after {:?}: {e}", started.elapsed());
    assert!(matches!(e.kind(), ErrorKind::Timeout | ErrorKind::Unavailable), "{e}");
    let waiting = client.clone();
    let waiting = tokio::spawn(async move { waiting.named("a").wait_at_most(ms(30_000)).acquire().await.unwrap() });
    tokio::time::sleep(ms(300)).await;
    assert!(!waiting.is_finished());
    transaction.commit().await.unwrap();
    let guard = waiting.await.unwrap();
    assert!(guard.token() > hold.token());
    // Its renewals waited, and then went through.
    renewed([&beside]).await;
}

/// Beside a client that goes on; the clock is taken back by giving tokens ahead of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn purging_repeats_no_token() {
    let file = File::new();
    let (engine, client) = (file.engine().await, file.client().await);
    assert_eq!(engine.purge(ms(1_000)).await.unwrap_err().kind(), ErrorKind::InvalidConfig);
    let kept = client.named("kept").ttl(ms(60_000)).acquire().await.unwrap();
    for n in 0..50 {
        client.acquire(&format!("old/{n}")).await.unwrap().release().await.unwrap();
    }
    let _crashed = granted(&engine, &claim("old/crashed", ms(50))).await;
    let _foreign = granted(&engine, &claim("foreign", ms(60_000))).await;
    client.acquire("young").await.unwrap().release().await.unwrap();
    tokio::time::sleep(ms(60)).await;
    file.run("UPDATE fencelock_locks SET acquired_at = 1, token = token + 5000000000000000").await;
    file.run("UPDATE fencelock_locks SET boot_id = 'another boot' WHERE name = CAST('foreign' AS BLOB)").await;
    file.run("UPDATE fencelock_locks SET acquired_at = unixepoch() * 1000000 WHERE name = CAST('young' AS BLOB)").await;
    // A crashed hold must have been over for long too.
    file.run("UPDATE fencelock_locks SET expires_at = 1 WHERE name = CAST('old/crashed' AS BLOB)").await;
    let gone = "SELECT max(token) FROM fencelock_locks WHERE name LIKE 'old/%'";
    let newest = number(&file, gone).await;
    let busy = client.clone();
    let busy = tokio::spawn(async move {
        let mut last = 0;
        for _ in 0..30 {
            let guard = busy.named("old/0").wait_at_most(ms(30_000)).acquire().await.unwrap();
            assert!(guard.token().get() > last);
            last = guard.token().get();
            guard.release().await.unwrap();
        }
    });
    let purged = engine.purge(ms(60_000)).await.unwrap();
    busy.await.unwrap();
    assert!((50..=51).contains(&purged), "{purged}");
    assert!(kept.is_held());
    assert_eq!(number(&file, "SELECT count(*) FROM fencelock_locks WHERE name IN (x'', CAST('kept' AS BLOB), CAST('young' AS BLOB), CAST('foreign' AS BLOB))").await, 4);
    for name in (1..50).map(|n| format!("old/{n}")).chain(["old/crashed".to_owned()]) {
        let guard = client.acquire(&name).await.unwrap();
        assert!(guard.token().as_i64() > newest, "{name}: {} after {newest}", guard.token());
        guard.release().await.unwrap();
    }
    assert!(client.list("").await.unwrap().iter().all(|(name, _)| !name.as_str().is_empty()));
    assert_eq!(engine.purge(ms(60_000)).await.unwrap(), 0);
}

/// What is dropped goes bit by bit: what stops it in the middle takes back a small part, and it goes on from there.
#[tokio::test]
async fn many_rows_are_purged_a_few_at_a_time() {
    let file = File::new();
    let engine = file.engine().await;
    fill(&file, 20_000).await;
    file.run(
        "CREATE TRIGGER stop BEFORE DELETE ON fencelock_locks WHEN old.token = 10000
        BEGIN SELECT raise(ABORT, 'no further'); END",
    )
    .await;
    engine.purge(ms(60_000)).await.unwrap_err();
    let left = number(&file, "SELECT count(*) FROM fencelock_locks WHERE name LIKE 'old/%'").await;
    assert!((10_001..=11_000).contains(&left), "{left} are left");
    file.run("DROP TRIGGER stop").await;
    assert_eq!(engine.purge(ms(60_000)).await.unwrap(), u64::try_from(left).unwrap());
    assert_eq!(number(&file, "SELECT token FROM fencelock_locks WHERE name = x''").await, 20_000);
}

/// Whoever wants to write finds room between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_are_taken_while_many_rows_are_purged() {
    let file = File::new();
    let (engine, client) = (file.engine().await, file.client().await);
    fill(&file, 50_000).await;
    let purging = tokio::spawn(async move { engine.purge(ms(60_000)).await });
    let mut taken = 0;
    while !purging.is_finished() {
        client.acquire("busy").await.unwrap().release().await.unwrap();
        taken += 1;
    }
    assert_eq!(purging.await.unwrap().unwrap(), 50_000);
    // Its fifty statements leave the file to others for 100 ms at the least.
    assert!(taken > 2, "taken {taken} times");
}

/// So many locks that nobody has used for long.
async fn fill(file: &File, rows: u32) {
    let sql = format!(
        "INSERT INTO fencelock_locks
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
        SELECT CAST('old/' || printf('%05d', i) AS BLOB), x'', i, 0, 0, 0, 'boot', '', NULL, 1 FROM n"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut file.raw().await).await.unwrap();
}
