//! The gate: tokens that never go back, and effects that are covered.
#![cfg(feature = "sqlite")]
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, reason = "tests")]

mod sqlite;

use fencelock_core::{Admission, ErrorKind, FencingToken, Gate, Stale};
use fencelock_sql::sqlite::SqliteGate;
use sqlite::*;
use sqlx::{Connection as _, SqliteConnection};

fn token(value: u64) -> FencingToken {
    FencingToken::new(value)
}

async fn file() -> (File, SqliteGate) {
    let file = File::new();
    file.run("CREATE TABLE data (n INTEGER)").await;
    file.run("INSERT INTO data VALUES (0)").await;
    let gate = SqliteGate::open(&file.path).await.unwrap();
    (file, gate)
}

async fn read(connection: &mut SqliteConnection) -> i64 {
    sqlx::query_scalar("SELECT n FROM data").fetch_one(connection).await.unwrap()
}

async fn write(connection: &mut SqliteConnection, n: i64) -> sqlx::Result<()> {
    sqlx::query("UPDATE data SET n = ?1").bind(n).execute(connection).await.map(drop)
}

#[tokio::test]
async fn a_smaller_token_is_stale_and_the_same_may_enter_again() {
    let (_file, gate) = file().await;
    for (value, admitted) in [(5, true), (5, true), (4, false), (9, true), (8, false)] {
        match gate.transaction("r", token(value)).await.unwrap() {
            Admission::Admitted(pass) => {
                assert!(admitted, "{value}");
                pass.commit().await.unwrap();
            }
            Admission::Stale(stale) => {
                assert!(!admitted, "{value}");
                assert!(stale.newest > token(value));
            }
        }
    }
    assert!(!gate.transaction("R", token(1)).await.unwrap().is_stale(), "another resource");
}

#[tokio::test]
async fn a_transaction_that_is_dropped_leaves_nothing() {
    let (file, gate) = file().await;
    let mut pass = gate.transaction("r", token(5)).await.unwrap().admitted().unwrap();
    write(&mut pass, 7).await.unwrap();
    drop(pass);
    assert!(!gate.transaction("r", token(4)).await.unwrap().is_stale(), "the entering was rolled back too");
    assert_eq!(read(&mut file.raw().await).await, 0);
}

#[tokio::test]
async fn nobody_enters_or_writes_between_entering_and_commit() {
    let (file, gate) = file().await;
    let mut pass = gate.transaction("r", token(5)).await.unwrap().admitted().unwrap();
    let seen = read(&mut pass).await;
    let mut other = file.raw().await;
    sqlx::query("PRAGMA busy_timeout = 50").execute(&mut other).await.unwrap();
    assert!(write(&mut other, 100).await.is_err(), "even one that knows no gate");
    let rival = SqliteGate::open(&file.path).await.unwrap();
    let entering = tokio::spawn(async move { rival.transaction("r", token(6)).await.unwrap().is_stale() });
    tokio::time::sleep(ms(100)).await;
    assert!(!entering.is_finished());
    write(&mut pass, seen + 1).await.unwrap();
    pass.commit().await.unwrap();
    assert!(!entering.await.unwrap());
    assert_eq!(read(&mut other).await, 1);
}

#[tokio::test]
async fn in_the_callers_own_transaction() {
    let (file, _) = file().await;
    let mut connection = file.raw().await;
    let gate = SqliteGate::create(&mut connection).await.unwrap();
    for (value, stale) in [(5, None), (3, Some(5)), (5, None)] {
        let mut transaction = connection.begin().await.unwrap();
        match gate.enter(&mut transaction, "r", token(value)).await.unwrap() {
            Admission::Admitted(mut pass) => {
                assert!(stale.is_none());
                let seen = read(&mut pass).await;
                write(&mut pass, seen + 1).await.unwrap();
                transaction.commit().await.unwrap();
            }
            Admission::Stale(found) => assert_eq!(Some(found), stale.map(|newest| Stale::new(token(newest)))),
        }
    }
    assert_eq!(read(&mut connection).await, 2);
}

#[tokio::test]
async fn outside_a_transaction_nobody_enters() {
    let (file, gate) = file().await;
    let mut connection = file.raw().await;
    let e = gate.enter(&mut connection, "r", token(5)).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unsupported, "{e}");
    assert!(!gate.transaction("r", token(1)).await.unwrap().is_stale(), "it did not enter");
    let without = SqliteGate::create(&mut connection).await.unwrap();
    assert_eq!(without.transaction("r", token(1)).await.unwrap_err().kind(), ErrorKind::Unsupported);
}

#[tokio::test]
async fn names_and_tables_are_checked() {
    let (file, gate) = file().await;
    assert_eq!(gate.transaction("", token(1)).await.unwrap_err().kind(), ErrorKind::InvalidName);
    drop(gate);
    file.run("DROP TABLE fencelock_fences").await;
    file.run("CREATE TABLE fencelock_fences (resource TEXT PRIMARY KEY, fence INTEGER)").await;
    let e = SqliteGate::open(&file.path).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidConfig);
    assert!(e.message().contains("CREATE TABLE IF NOT EXISTS fencelock_fences"), "{e}");
}

#[tokio::test]
async fn a_stale_writer_is_refused_after_its_lock_was_taken_over() {
    let (file, gate) = file().await;
    let locks = File::new();
    let engine = locks.engine().await;
    let paused = granted(&engine, &claim("r", ms(50))).await;
    tokio::time::sleep(ms(60)).await;
    let next = granted(&engine, &claim("r", ms(1000))).await;
    let mut pass = gate.transaction("r", next.token).await.unwrap().admitted().unwrap();
    write(&mut pass, 2).await.unwrap();
    pass.commit().await.unwrap();
    let late = gate.transaction("r", paused.token).await.unwrap();
    assert_eq!(late.admitted().unwrap_err(), Stale::new(next.token), "attempted, and refused");
    assert_eq!(read(&mut file.raw().await).await, 2);
}
