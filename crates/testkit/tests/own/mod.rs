//! A small engine in a file, right or wrong in one way: what the suite itself is tested on.

#![allow(dead_code, reason = "each test binary uses a part")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests say what they expect by panicking"
)]

mod engine;
mod flaws;
mod lease;
mod table;

pub(crate) use engine::OwnLock;
pub(crate) use flaws::Flaw;

use async_trait::async_trait;
use fencelock_core::{DistributedLock, Error, ErrorKind, Result};
use fencelock_testkit::Harness;
use std::sync::Arc;

pub(crate) fn broke(e: std::io::Error) -> Error {
    Error::new(ErrorKind::Engine, "the lock file failed").with_source(e)
}

/// The engine with flaw number `F` of [`Flaw::ALL`]; 0 is none.
pub(crate) struct Own<const F: usize> {
    dir: tempfile::TempDir,
}

#[async_trait]
impl<const F: usize> Harness for Own<F> {
    const NAME: &'static str = Flaw::ALL[F].name();

    async fn start() -> Result<Self> {
        Ok(Self { dir: tempfile::tempdir().map_err(broke)? })
    }

    fn address(&self) -> String {
        format!("{F}:{}", self.dir.path().display())
    }

    async fn connect(address: &str) -> Result<Arc<dyn DistributedLock>> {
        // The flaw travels with the address, so that every child process has it.
        let (flaw, dir) = address.split_once(':').unwrap();
        Ok(Arc::new(OwnLock::at(dir, Flaw::ALL[flaw.parse::<usize>().unwrap()])))
    }

    async fn interrupt(&self) -> Result<()> {
        std::fs::write(self.dir.path().join("down"), "").map_err(broke)
    }

    async fn heal(&self) -> Result<()> {
        match std::fs::remove_file(self.dir.path().join("down")) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(broke(e)),
            _ => Ok(()),
        }
    }
}
