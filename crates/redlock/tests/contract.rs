//! The contract suite on three nodes.

#![allow(missing_docs, reason = "a test")]

mod common;

use async_trait::async_trait;
use fencelock_core::{DistributedLock, Error, ErrorKind, Result};
use fencelock_lab::RedisNodes;
use fencelock_testkit::Harness;
use std::process::ExitCode;
use std::sync::Arc;

struct Three(RedisNodes);

#[async_trait]
impl Harness for Three {
    const NAME: &'static str = "redlock";

    async fn start() -> Result<Self> {
        let nodes = RedisNodes::start_durable(3).map_err(|e| Error::new(ErrorKind::Engine, e.to_string()))?;
        common::operator(&nodes).init(0).await?;
        Ok(Self(nodes))
    }

    fn address(&self) -> String {
        self.0.addresses()
    }

    async fn connect(address: &str) -> Result<Arc<dyn DistributedLock>> {
        Ok(common::engine(address).await?)
    }

    async fn interrupt(&self) -> Result<()> {
        self.0.nodes().iter().for_each(|node| node.server().stop());
        Ok(())
    }

    async fn heal(&self) -> Result<()> {
        self.0.nodes().iter().for_each(|node| node.server().cont());
        Ok(())
    }
}

fn main() -> ExitCode {
    fencelock_testkit::main::<Three>()
}
