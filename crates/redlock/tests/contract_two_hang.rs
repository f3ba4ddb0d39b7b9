//! The contract suite on five nodes of which two hang all the time.

#![allow(missing_docs, reason = "a test")]

mod common;

use async_trait::async_trait;
use fencelock_core::{DistributedLock, Error, ErrorKind, Result};
use fencelock_lab::RedisNodes;
use fencelock_testkit::Harness;
use std::process::ExitCode;
use std::sync::Arc;

/// The first ones.
const WELL: usize = 3;

struct TwoHang(RedisNodes);

#[async_trait]
impl Harness for TwoHang {
    const NAME: &'static str = "redlock, two of five hung";

    async fn start() -> Result<Self> {
        let nodes = RedisNodes::start_durable(5).map_err(|e| Error::new(ErrorKind::Engine, e.to_string()))?;
        common::operator(&nodes).init(0).await?;
        nodes.nodes().iter().skip(WELL).for_each(|node| node.server().stop());
        Ok(Self(nodes))
    }

    fn address(&self) -> String {
        self.0.addresses()
    }

    async fn connect(address: &str) -> Result<Arc<dyn DistributedLock>> {
        Ok(common::engine(address).await?)
    }

    async fn interrupt(&self) -> Result<()> {
        self.0.nodes().iter().take(WELL).for_each(|node| node.server().stop());
        Ok(())
    }

    async fn heal(&self) -> Result<()> {
        self.0.nodes().iter().take(WELL).for_each(|node| node.server().cont());
        Ok(())
    }
}

fn main() -> ExitCode {
    fencelock_testkit::main::<TwoHang>()
}
