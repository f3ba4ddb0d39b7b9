//! The suite on the engine in memory: one process, in order, told at once.

use async_trait::async_trait;
use fencelock_core::memory::{MemoryLock, MemoryServer};
use fencelock_core::{DistributedLock, Error, ErrorKind, Result};
use fencelock_testkit::Harness;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

/// Servers by address: another process would find none.
static SERVERS: Mutex<BTreeMap<String, MemoryServer>> = Mutex::new(BTreeMap::new());

struct Memory {
    server: MemoryServer,
    address: String,
}

#[async_trait]
impl Harness for Memory {
    const NAME: &'static str = "memory";

    async fn start() -> Result<Self> {
        let (server, address) = (MemoryServer::new(), "memory:contract".to_owned());
        SERVERS.lock().unwrap_or_else(PoisonError::into_inner).insert(address.clone(), server.clone());
        Ok(Self { server, address })
    }

    fn address(&self) -> String {
        self.address.clone()
    }

    async fn connect(address: &str) -> Result<Arc<dyn DistributedLock>> {
        let servers = SERVERS.lock().unwrap_or_else(PoisonError::into_inner);
        let server = servers.get(address).ok_or_else(|| Error::new(ErrorKind::Unavailable, "no such server here"))?;
        Ok(Arc::new(MemoryLock::on(server)))
    }

    async fn interrupt(&self) -> Result<()> {
        self.server.set_hung(true);
        Ok(())
    }

    async fn heal(&self) -> Result<()> {
        self.server.set_hung(false);
        Ok(())
    }
}

fn main() -> ExitCode {
    fencelock_testkit::main::<Memory>()
}
