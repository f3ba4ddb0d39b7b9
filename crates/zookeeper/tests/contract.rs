//! The contract suite on one ZooKeeper server.

#![allow(missing_docs, reason = "a test")]

use async_trait::async_trait;
use fencelock_core::{DistributedLock, EngineUrl, Error, ErrorKind, Result};
use fencelock_lab::ZooKeeper;
use fencelock_testkit::Harness;
use fencelock_zookeeper::{ZooKeeperConfig, ZooKeeperLock};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

struct One(ZooKeeper);

#[async_trait]
impl Harness for One {
    const NAME: &'static str = "zookeeper";
    const TTL: Duration = Duration::from_millis(2_400);

    async fn start() -> Result<Self> {
        let started = ZooKeeper::start();
        started.map(Self).map_err(|e| Error::new(ErrorKind::Unavailable, "the server did not start").with_source(e))
    }

    fn address(&self) -> String {
        format!("zookeeper://{}/app/locks?session=2400ms&request_timeout=1s&connect_timeout=3s", self.0.address())
    }

    async fn connect(address: &str) -> Result<Arc<dyn DistributedLock>> {
        Ok(ZooKeeperLock::connect(ZooKeeperConfig::from_url(&EngineUrl::parse(address)?)?).await?)
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
    fencelock_testkit::main::<One>()
}
