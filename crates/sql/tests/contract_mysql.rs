//! The contract suite on MariaDB.

#![allow(missing_docs, reason = "a test")]

use async_trait::async_trait;
use fencelock_core::{DistributedLock, EngineUrl, Error, ErrorKind, Result};
use fencelock_lab::MariaDb;
use fencelock_sql::SqlLock;
use fencelock_sql::mysql::MySqlConfig;
use fencelock_testkit::Harness;
use std::process::ExitCode;
use std::sync::Arc;

struct Server(MariaDb);

#[async_trait]
impl Harness for Server {
    const NAME: &'static str = "mysql";

    async fn start() -> Result<Self> {
        // As many connections as the cases together open.
        let started = MariaDb::start_with(["--max-connections=500"]);
        started.map(Self).map_err(|e| Error::new(ErrorKind::Engine, e.to_string()))
    }

    fn address(&self) -> String {
        self.0.url()
    }

    async fn connect(address: &str) -> Result<Arc<dyn DistributedLock>> {
        Ok(SqlLock::mysql(MySqlConfig::from_url(&EngineUrl::parse(address)?)?).await?)
    }

    async fn interrupt(&self) -> Result<()> {
        self.0.server().stop();
        Ok(())
    }

    async fn heal(&self) -> Result<()> {
        self.0.server().cont();
        Ok(())
    }
}

fn main() -> ExitCode {
    fencelock_testkit::main::<Server>()
}
