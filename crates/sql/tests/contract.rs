//! The contract suite on SQLite.

#![allow(missing_docs, reason = "a test")]

use async_trait::async_trait;
use fencelock_core::{DistributedLock, Error, ErrorKind, Result};
use fencelock_sql::SqlLock;
use fencelock_sql::sqlite::SqliteConfig;
use fencelock_testkit::Harness;
use sqlx::{ConnectOptions as _, SqliteConnection, sqlite::SqliteConnectOptions};
use std::process::ExitCode;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::sync::Mutex;

struct Sqlite {
    directory: TempDir,
    /// A writer that keeps the file to itself: nobody else is answered.
    blocker: Mutex<Option<SqliteConnection>>,
}

fn failed(e: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Engine, "the harness failed").with_source(e)
}

#[async_trait]
impl Harness for Sqlite {
    const NAME: &'static str = "sqlite";

    async fn start() -> Result<Self> {
        // In memory where there is such a place: eight cases write to one file, and a disk that others keep busy
        // makes them wait for each other longer than their leases last.
        let memory = std::path::Path::new("/dev/shm");
        let directory = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let directory = directory.map_err(failed)?;
        Ok(Self { directory, blocker: Mutex::new(None) })
    }

    fn address(&self) -> String {
        self.directory.path().join("locks.db").display().to_string()
    }

    async fn connect(address: &str) -> Result<Arc<dyn DistributedLock>> {
        Ok(SqlLock::sqlite(SqliteConfig::new(address)).await?)
    }

    async fn interrupt(&self) -> Result<()> {
        let file =
            SqliteConnectOptions::new().filename(self.address()).busy_timeout(std::time::Duration::from_secs(10));
        let mut connection = file.connect().await.map_err(failed)?;
        sqlx::query("BEGIN IMMEDIATE").execute(&mut connection).await.map_err(failed)?;
        *self.blocker.lock().await = Some(connection);
        Ok(())
    }

    async fn heal(&self) -> Result<()> {
        if let Some(mut connection) = self.blocker.lock().await.take() {
            sqlx::query("ROLLBACK").execute(&mut connection).await.map_err(failed)?;
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    fencelock_testkit::main::<Sqlite>()
}
