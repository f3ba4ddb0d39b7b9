//! `fencelock purge` on a SQLite file, and where there is nothing to purge.
#![cfg(feature = "sqlite")]
#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

use sqlx::{ConnectOptions as _, sqlite::SqliteConnectOptions};
use std::process::{Command, Output};

fn fencelock(url: &str, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fencelock"));
    let folder = tempfile::tempdir().unwrap();
    command.args(words).env("FENCELOCK_URL", url).current_dir(folder.path()).output().unwrap()
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

#[test]
fn rows_that_nobody_has_held_for_long_go() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    let url = format!("sqlite:{}", path.display());
    for name in ["old/1", "old/2", "young"] {
        assert_eq!(code(&fencelock(&url, &["run", name, "--", "true"])), Some(0));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut file = SqliteConnectOptions::new().filename(&path).connect().await.unwrap();
        let sql = "UPDATE fencelock_locks SET acquired_at = 1 WHERE name <> CAST('young' AS BLOB)";
        sqlx::query(sql).execute(&mut file).await.unwrap();
    });
    let purged = fencelock(&url, &["purge", "--idle", "1h"]);
    assert_eq!((code(&purged), String::from_utf8_lossy(&purged.stdout).trim()), (Some(0), "2 rows dropped"));
    let again = fencelock(&url, &["purge"]);
    assert_eq!((code(&again), String::from_utf8_lossy(&again.stdout).trim()), (Some(0), "0 rows dropped"));
    assert_eq!(code(&fencelock(&url, &["purge", "--idle", "5s"])), Some(78), "rows may go after a minute");
    assert_eq!(code(&fencelock(&url, &["run", "old/1", "--", "true"])), Some(0));
}

#[test]
fn an_engine_without_rows_says_so() {
    let refused = fencelock("memory:", &["purge"]);
    assert_eq!(code(&refused), Some(64), "{}", String::from_utf8_lossy(&refused.stderr));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("keeps no rows"));
}
