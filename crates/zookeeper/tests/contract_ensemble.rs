//! The contract suite on three ZooKeeper servers.

#![allow(missing_docs, reason = "a test")]

use async_trait::async_trait;
use fencelock_core::{DistributedLock, EngineUrl, Error, ErrorKind, Result};
use fencelock_lab::{Ensemble, ZooKeeperSettings};
use fencelock_testkit::Harness;
use fencelock_zookeeper::{ZooKeeperConfig, ZooKeeperLock};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

struct Three(Ensemble);

#[async_trait]
impl Harness for Three {
    const NAME: &'static str = "zookeeper ensemble";
    /// Servers that stood still for longer than syncLimit · tickTime elect a leader
    /// anew, so that is longer than a hold takes to notice that it is in jeopardy.
    const TTL: Duration = Duration::from_millis(3_200);

    async fn start() -> Result<Self> {
        let started = Ensemble::start_with(3, &ZooKeeperSettings::default().with_sync_limit(7));
        started.map(Self).map_err(|e| Error::new(ErrorKind::Unavailable, "the servers did not start").with_source(e))
    }

    fn address(&self) -> String {
        format!("zookeeper://{}/app/locks?session=3200ms&request_timeout=2s&connect_timeout=4s", self.0.addresses())
    }

    async fn connect(address: &str) -> Result<Arc<dyn DistributedLock>> {
        Ok(ZooKeeperLock::connect(ZooKeeperConfig::from_url(&EngineUrl::parse(address)?)?).await?)
    }

    async fn interrupt(&self) -> Result<()> {
        for member in self.0.members() {
            member.server().stop();
        }
        Ok(())
    }

    async fn heal(&self) -> Result<()> {
        for member in self.0.members() {
            member.server().cont();
        }
        Ok(())
    }

    async fn settle(&self) -> Result<()> {
        let settled = self.0.settle();
        settled.map_err(|e| Error::new(ErrorKind::Unavailable, "the servers elect no leader").with_source(e))
    }
}

fn main() -> ExitCode {
    fencelock_testkit::main::<Three>()
}
