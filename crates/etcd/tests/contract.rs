//! The contract suite on one member.

#![allow(missing_docs, reason = "a test")]

use async_trait::async_trait;
use fencelock_core::{DistributedLock, Error, ErrorKind, Result};
use fencelock_etcd::{EtcdConfig, EtcdLock};
use fencelock_lab::Etcd;
use fencelock_testkit::Harness;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

struct OneMember(Etcd);

#[async_trait]
impl Harness for OneMember {
    const NAME: &'static str = "etcd";
    const TTL: Duration = Duration::from_secs(2);

    async fn start() -> Result<Self> {
        let etcd = tokio::task::spawn_blocking(Etcd::start).await;
        etcd.map_err(failed)?.map(Self).map_err(failed)
    }

    fn address(&self) -> String {
        self.0.endpoints().join(",")
    }

    async fn connect(address: &str) -> Result<Arc<dyn DistributedLock>> {
        Ok(EtcdLock::connect(EtcdConfig::new(address.split(','))).await?)
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

fn failed(e: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Engine, "the harness failed").with_source(e)
}

fn main() -> ExitCode {
    fencelock_testkit::main::<OneMember>()
}
