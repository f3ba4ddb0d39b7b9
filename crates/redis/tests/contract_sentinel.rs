//! The contract suite on a master with two replicas and three Sentinels.

#![allow(missing_docs, reason = "a test")]

use async_trait::async_trait;
use fencelock_core::{DistributedLock, EngineUrl, Error, ErrorKind, Result};
use fencelock_lab::RedisSentinel;
use fencelock_redis::{RedisConfig, RedisLock};
use fencelock_testkit::Harness;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// Frozen all together, none may take another for dead when they go on.
const PATIENCE: Duration = Duration::from_secs(30);

struct Servers(RedisSentinel);

#[async_trait]
impl Harness for Servers {
    const NAME: &'static str = "redis sentinel";

    async fn start() -> Result<Self> {
        let started = tokio::task::spawn_blocking(|| RedisSentinel::start_with(PATIENCE)).await;
        let started = started.map_err(|e| Error::new(ErrorKind::Engine, e.to_string()))?;
        started.map(Self).map_err(|e| Error::new(ErrorKind::Engine, e.to_string()))
    }

    fn address(&self) -> String {
        let sentinels: Vec<_> = self.0.sentinels().iter().map(ToString::to_string).collect();
        format!("redis+sentinel://{}/{}", sentinels.join(","), self.0.name())
    }

    async fn connect(address: &str) -> Result<Arc<dyn DistributedLock>> {
        Ok(RedisLock::connect(RedisConfig::from_url(&EngineUrl::parse(address)?)?).await?)
    }

    async fn interrupt(&self) -> Result<()> {
        self.0.stop();
        Ok(())
    }

    async fn heal(&self) -> Result<()> {
        self.0.cont();
        Ok(())
    }
}

fn main() -> ExitCode {
    fencelock_testkit::main::<Servers>()
}
