//! What the SQLite tests share: a file in a directory of its own, and a second way into it.
#![allow(dead_code, clippy::unwrap_used, clippy::panic, reason = "each test uses some of it, and tests may panic")]

use fencelock_core::{
    Attempt, Claim, DistributedLock, Error, ErrorKind, Grant, LockClient, LockGuard, LockName, Terms,
};
use fencelock_sql::SqlLock;
use fencelock_sql::sqlite::SqliteConfig;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, SqliteConnection};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) struct File {
    _directory: tempfile::TempDir,
    pub(crate) path: PathBuf,
}

impl File {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("locks.db");
        Self { _directory: directory, path }
    }

    pub(crate) fn config(&self) -> SqliteConfig {
        SqliteConfig::new(&self.path)
    }

    /// One that waits as long as a loaded machine may make it wait for another's write.
    pub(crate) async fn engine(&self) -> Arc<SqlLock> {
        let patient = self.config().with_request_timeout(ms(30_000)).with_busy_timeout(ms(20_000));
        SqlLock::sqlite(patient).await.unwrap()
    }

    pub(crate) async fn client(&self) -> LockClient {
        LockClient::new(self.engine().await).unwrap()
    }

    pub(crate) async fn refusal(&self) -> Error {
        SqlLock::sqlite(self.config()).await.unwrap_err()
    }

    /// A connection that knows nothing of locks.
    pub(crate) async fn raw(&self) -> SqliteConnection {
        SqliteConnectOptions::new().filename(&self.path).create_if_missing(true).connect().await.unwrap()
    }

    pub(crate) async fn run(&self, sql: &'static str) {
        sqlx::query(sql).fetch_all(&mut self.raw().await).await.unwrap();
    }
}

pub(crate) fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

pub(crate) fn terms(name: &str, ttl: Duration) -> Terms {
    Terms::new(LockName::new(name).unwrap(), ttl).with_holder("tester")
}

pub(crate) fn claim(name: &str, ttl: Duration) -> Claim {
    terms(name, ttl).mint().unwrap()
}

pub(crate) async fn granted(engine: &SqlLock, claim: &Claim) -> Grant {
    match engine.try_acquire(claim).await.unwrap() {
        Attempt::Granted(grant) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

pub(crate) async fn contended(engine: &SqlLock, claim: &Claim) -> Option<Duration> {
    match engine.try_acquire(claim).await.unwrap() {
        Attempt::Contended { retry_after, .. } => retry_after,
        other => panic!("not contended: {other:?}"),
    }
}

/// Waits until it is so, looking often.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !holds().await {
        assert!(started.elapsed() < ms(20_000), "not in time: {what}");
        tokio::time::sleep(ms(10)).await;
    }
}

/// Waits until each has been renewed from now on. What is lost is never renewed again.
pub(crate) async fn renewed(guards: impl IntoIterator<Item = &LockGuard>) {
    let guards: Vec<_> = guards.into_iter().map(|guard| (guard, guard.monitor().deadline())).collect();
    until("renewed", async || {
        guards.iter().all(|(guard, before)| {
            assert!(guard.is_held(), "{} is lost", guard.name());
            guard.monitor().deadline() > *before
        })
    })
    .await;
}

pub(crate) async fn dead(engine: &SqlLock, claim: &Claim) {
    let e = engine.try_acquire(claim).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Lost, "{e}");
}
