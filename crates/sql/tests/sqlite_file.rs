//! Files that are not what they should be.
#![cfg(feature = "sqlite")]
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "tests"
)]

mod sqlite;

use fencelock_core::{DistributedLock, ErrorKind, Level, LockClient, RuleOutcome};
use fencelock_sql::SqlLock;
use fencelock_sql::sqlite::{SqliteConfig, Synchronous};
use sqlite::*;

#[tokio::test]
async fn a_table_of_another_shape_is_refused_with_the_right_one() {
    for wrong in [
        "CREATE TABLE fencelock_locks (name TEXT PRIMARY KEY)",
        "CREATE TABLE fencelock_locks (name BLOB NOT NULL, claim_id BLOB NOT NULL, token INTEGER NOT NULL, expires_at INTEGER NOT NULL, ttl INTEGER NOT NULL, boot_id TEXT NOT NULL, holder TEXT NOT NULL, note TEXT, acquired_at INTEGER NOT NULL) STRICT",
        "CREATE TABLE fencelock_voids (claim_id BLOB NOT NULL PRIMARY KEY, expires_at INTEGER NOT NULL, boot_id TEXT NOT NULL)",
        "CREATE VIEW fencelock_locks AS SELECT 1 AS name",
        "CREATE TABLE fencelock_voids (claim_id BLOB PRIMARY KEY) STRICT",
    ] {
        let file = File::new();
        file.run(wrong).await;
        let e = file.refusal().await;
        assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{wrong}: {e}");
        assert!(e.message().contains("CREATE TABLE IF NOT EXISTS fencelock_"), "{e}");
    }
}

#[tokio::test]
async fn the_printed_table_is_accepted() {
    let file = File::new();
    file.run("CREATE TABLE fencelock_locks (name TEXT)").await;
    let told = file.refusal().await.message().to_owned();
    let ddl = told.split_once("it is made by: ").unwrap().1.to_owned();
    file.run("DROP TABLE fencelock_locks").await;
    sqlx::query(sqlx::AssertSqlSafe(ddl)).fetch_all(&mut file.raw().await).await.unwrap();
    granted(&*file.engine().await, &claim("a", ms(60_000))).await.lease.release().await.unwrap();
}

#[tokio::test]
async fn another_version_of_the_layout_is_refused() {
    let file = File::new();
    drop(file.engine().await);
    file.run("UPDATE fencelock_meta SET value = 2 WHERE key = 'layout'").await;
    let e = file.refusal().await;
    assert_eq!(e.kind(), ErrorKind::Refused);
    assert!(e.message().contains("version 2"), "{e}");
}

#[tokio::test]
async fn what_cannot_be_opened_says_what_to_do() {
    let file = File::new();
    std::fs::write(&file.path, "this is a text file, and longer than the header of a database would be".repeat(20))
        .unwrap();
    let e = file.refusal().await;
    assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{e}");
    assert!(e.message().contains("not a SQLite database"), "{e}");

    let file = File::new();
    let e = SqlLock::sqlite(SqliteConfig::new(file.path.join("deep").join("locks.db"))).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{e}");
    assert!(e.message().contains("does not exist: create it"), "{e}");

    std::fs::create_dir(&file.path).unwrap();
    let e = file.refusal().await;
    assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{e}");
    assert!(e.message().contains("is a directory"), "{e}");

    let file = File::new();
    let e = SqlLock::sqlite(file.config().with_create(false)).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{e}");
    assert!(!file.path.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_may_create_the_file_at_once() {
    for _ in 0..10 {
        let file = File::new();
        let mut opening = tokio::task::JoinSet::new();
        for _ in 0..16 {
            opening.spawn(SqlLock::sqlite(file.config().with_request_timeout(ms(30_000)).with_busy_timeout(ms(10))));
        }
        let mut engines = Vec::new();
        while let Some(engine) = opening.join_next().await {
            engines.push(engine.unwrap().unwrap());
        }
        let _held = granted(&engines[0], &claim("a", ms(60_000))).await;
        for engine in &engines {
            contended(engine, &claim("a", ms(1000))).await;
        }
    }
}

#[tokio::test]
async fn the_level_is_what_the_file_gives() {
    let file = File::new();
    let found = file.engine().await.guarantees();
    // A temporary directory may lie in memory, which keeps no token through a power loss.
    let disk = !found.rule_is("sqlite.fsync", RuleOutcome::Refused);
    assert_eq!(found.level(), Some(if disk { Level::Fenced } else { Level::Leased }), "{found:?}");
    assert_eq!(found.scope(), fencelock_core::Scope::Host);
    assert!(found.require(Level::Replicated).unwrap_err().message().contains("etcd"));
    let lax = SqlLock::sqlite(file.config().with_synchronous(Synchronous::Normal)).await.unwrap().guarantees();
    assert_eq!(lax.level(), Some(Level::Leased));
    assert!(lax.require(Level::Fenced).unwrap_err().message().contains("synchronous = full"));
    let odd = SqlLock::sqlite(file.config().with_attested(["sqlite.one_host"])).await.unwrap_err();
    assert_eq!(odd.kind(), ErrorKind::Refused);
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn a_second_name_of_the_file_takes_every_level_away() {
    let file = File::new();
    std::fs::write(&file.path, "").unwrap();
    let second = file.path.with_extension("link");
    std::fs::hard_link(&file.path, &second).unwrap();
    let found = SqlLock::sqlite(SqliteConfig::new(&second)).await.unwrap().guarantees();
    assert_eq!(found.level(), None);
    assert!(found.require(Level::Advisory).unwrap_err().message().contains("sqlite.one_log"));

    let file = File::new();
    let symbolic = file.path.with_extension("symbolic");
    std::os::unix::fs::symlink(&file.path, &symbolic).unwrap();
    let (one, other) = (file.engine().await, SqlLock::sqlite(SqliteConfig::new(&symbolic)).await.unwrap());
    let _held = granted(&one, &claim("a", ms(60_000))).await;
    contended(&other, &claim("a", ms(1000))).await;
    assert!(other.guarantees().rule_is("sqlite.one_log", RuleOutcome::Proved));
}

#[tokio::test]
async fn a_replaced_file_is_seen_and_opened_anew() {
    let file = File::new();
    let engine = file.engine().await;
    let old = granted(&engine, &claim("a", ms(60_000))).await;
    let other = File::new();
    drop(other.engine().await);
    for tail in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{tail}", file.path.display()));
    }
    let gone = engine.try_acquire(&claim("b", ms(1000))).await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::Unavailable, "{gone}");
    assert!(!file.path.exists(), "a file that is gone is not made again under a living engine");
    std::fs::copy(&other.path, &file.path).unwrap();
    granted(&engine, &claim("b", ms(60_000))).await.lease.release().await.unwrap();
    // What was held in the old file is not in this one, and is told so.
    assert_eq!(old.lease.release().await.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test]
async fn a_dropped_table_is_made_again() {
    let file = File::new();
    let engine = file.engine().await;
    file.run("DROP TABLE fencelock_locks").await;
    assert_eq!(engine.try_acquire(&claim("a", ms(1000))).await.unwrap_err().kind(), ErrorKind::Engine);
    granted(&engine, &claim("a", ms(60_000))).await.lease.release().await.unwrap();
}

#[tokio::test]
async fn a_statement_that_nobody_waited_for_still_runs_and_is_undone() {
    let file = File::new();
    let engine = file.engine().await;
    let mut ran = 0;
    for micros in (0..2000).step_by(25) {
        let mine = claim("a", ms(60_000));
        let limit = std::time::Duration::from_micros(micros);
        let _ = tokio::time::timeout(limit, engine.try_acquire(&mine)).await;
        if mine.is_unanswered() {
            ran += 1;
        }
        engine.abandon(&mine).await.unwrap();
        assert!(engine.inspect(mine.name()).await.unwrap().is_none());
        if mine.was_sent() {
            dead(&engine, &mine).await;
        }
    }
    println!("{ran} of 80 were given up while under way");
}

#[tokio::test]
async fn clients_work_through_close() {
    let file = File::new();
    let client = LockClient::new(file.engine().await).unwrap();
    drop(client.acquire("a").await.unwrap());
    client.close().await;
    assert!(file.client().await.try_acquire("a").await.unwrap().is_some(), "drop frees");
}

/// Told within a renewal interval and the time to open the file anew, where renewals would go on for ever.
async fn told(guard: &fencelock_core::LockGuard) {
    tokio::time::timeout(ms(20_000), guard.lost()).await.expect("the holder is told");
    assert!(!guard.is_held());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_is_told_when_the_log_is_deleted_under_it() {
    let file = File::new();
    let client = file.client().await;
    let guard = client.named("a").ttl(ms(1_000)).acquire().await.unwrap();
    for log in ["-wal", "-shm"] {
        let mut path = file.path.clone().into_os_string();
        path.push(log);
        std::fs::remove_file(path).unwrap();
    }
    told(&guard).await;
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    client.acquire("a").await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_is_told_when_the_file_gets_another_name() {
    let file = File::new();
    let client = file.client().await;
    let guard = client.named("a").ttl(ms(1_000)).acquire().await.unwrap();
    std::fs::hard_link(&file.path, file.path.with_extension("other")).unwrap();
    told(&guard).await;
    let e = client.try_acquire("a").await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Refused, "{e}");
    assert_eq!(client.guarantees().level(), None);
    std::fs::remove_file(file.path.with_extension("other")).unwrap();
    client.acquire("a").await.unwrap().release().await.unwrap();
}

#[test]
fn a_runtime_without_timers_is_refused() {
    let file = File::new();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert_eq!(runtime.block_on(file.refusal()).kind(), ErrorKind::InvalidConfig);
    let gate = runtime.block_on(fencelock_sql::sqlite::SqliteGate::open(&file.path));
    assert_eq!(gate.unwrap_err().kind(), ErrorKind::InvalidConfig);
}
