//! The contract suite on one Redis.

#![allow(missing_docs, reason = "a test")]

use async_trait::async_trait;
use fencelock_core::{DistributedLock, EngineUrl, Error, ErrorKind, Result};
use fencelock_lab::Redis;
use fencelock_redis::{RedisConfig, RedisLock};
use fencelock_testkit::Harness;
use std::process::ExitCode;
use std::sync::Arc;

struct Standalone(Redis);

#[async_trait]
impl Harness for Standalone {
    const NAME: &'static str = "redis";

    async fn start() -> Result<Self> {
        Redis::start_durable().map(Self).map_err(|e| Error::new(ErrorKind::Engine, e.to_string()))
    }

    fn address(&self) -> String {
        format!("redis://{}", self.0.address())
    }

    async fn connect(address: &str) -> Result<Arc<dyn DistributedLock>> {
        Ok(RedisLock::connect(RedisConfig::from_url(&EngineUrl::parse(address)?)?).await?)
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
    fencelock_testkit::main::<Standalone>()
}
