//! The contract suite on PostgreSQL.

#![allow(missing_docs, reason = "a test")]

use async_trait::async_trait;
use fencelock_core::{DistributedLock, EngineUrl, Error, ErrorKind, Result};
use fencelock_lab::Postgres;
use fencelock_sql::SqlLock;
use fencelock_sql::postgres::PostgresConfig;
use fencelock_testkit::Harness;
use std::process::ExitCode;
use std::sync::Arc;

struct Server(Postgres);

#[async_trait]
impl Harness for Server {
    const NAME: &'static str = "postgres";

    async fn start() -> Result<Self> {
        // As many connections as the cases together open.
        let started = Postgres::start_with(["max_connections=500"]);
        started.map(Self).map_err(|e| Error::new(ErrorKind::Engine, e.to_string()))
    }

    fn address(&self) -> String {
        self.0.url()
    }

    async fn connect(address: &str) -> Result<Arc<dyn DistributedLock>> {
        Ok(SqlLock::postgres(PostgresConfig::from_url(&EngineUrl::parse(address)?)?).await?)
    }

    async fn interrupt(&self) -> Result<()> {
        self.0.freeze();
        Ok(())
    }

    async fn heal(&self) -> Result<()> {
        self.0.thaw();
        Ok(())
    }
}

fn main() -> ExitCode {
    fencelock_testkit::main::<Server>()
}
