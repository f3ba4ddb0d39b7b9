//! The contract suite on PostgreSQL behind `PgBouncer` in transaction mode.

#![allow(missing_docs, reason = "a test")]

use async_trait::async_trait;
use fencelock_core::{DistributedLock, EngineUrl, Error, ErrorKind, Result};
use fencelock_lab::{PgBouncer, Postgres};
use fencelock_sql::SqlLock;
use fencelock_sql::postgres::PostgresConfig;
use fencelock_testkit::Harness;
use std::process::ExitCode;
use std::sync::Arc;

struct Server(Postgres, PgBouncer);

#[async_trait]
impl Harness for Server {
    const NAME: &'static str = "postgres behind a pooler";

    async fn start() -> Result<Self> {
        let failed = |e: fencelock_lab::Failure| Error::new(ErrorKind::Engine, e.to_string());
        let server = Postgres::start().map_err(failed)?;
        let pooler = PgBouncer::before(&server, 10).map_err(failed)?;
        Ok(Self(server, pooler))
    }

    fn address(&self) -> String {
        self.1.url()
    }

    async fn connect(address: &str) -> Result<Arc<dyn DistributedLock>> {
        let engine = SqlLock::postgres(PostgresConfig::from_url(&EngineUrl::parse(address)?)?).await?;
        if engine.guarantees().deployment().contains("pooler") {
            return Ok(engine);
        }
        Err(Error::new(ErrorKind::Engine, "the pooler was not seen"))
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
