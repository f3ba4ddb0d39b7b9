//! The contract suite on the engine in memory.

#![allow(missing_docs, reason = "a test")]

use async_trait::async_trait;
use fencelock_core::memory::{MemoryLock, MemoryServer};
use fencelock_core::{DistributedLock, Error, ErrorKind, Result};
use fencelock_testkit::Harness;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// All clients of one process reach its one server: an address cannot lead out of it.
static SERVER: OnceLock<MemoryServer> = OnceLock::new();

struct Memory;

#[async_trait]
impl Harness for Memory {
    const NAME: &'static str = "memory";

    async fn start() -> Result<Self> {
        SERVER.set(MemoryServer::new()).map_err(|_| Error::new(ErrorKind::Engine, "started twice"))?;
        Ok(Self)
    }

    fn address(&self) -> String {
        "in this process".to_owned()
    }

    async fn connect(_: &str) -> Result<Arc<dyn DistributedLock>> {
        let server = SERVER.get().ok_or_else(|| Error::new(ErrorKind::Unavailable, "not in this process"))?;
        Ok(Arc::new(MemoryLock::on(server).with_request_limit(Duration::from_millis(500))))
    }

    async fn interrupt(&self) -> Result<()> {
        SERVER.get().inspect(|server| server.set_hung(true));
        Ok(())
    }

    async fn heal(&self) -> Result<()> {
        SERVER.get().inspect(|server| server.set_hung(false));
        Ok(())
    }
}

fn main() -> ExitCode {
    fencelock_testkit::main::<Memory>()
}
