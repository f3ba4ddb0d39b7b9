//! The contract suite on three ZooKeeper servers.

#![allow(missing_docs, reason = "a test")]

use async_trait::async_trait;
use fencelock_core::{DistributedLock, EngineUrl, Error, ErrorKind, LockClient, Result};
use fencelock_lab::{Ensemble, ZooKeeperSettings};
use fencelock_testkit::Harness;
use fencelock_zookeeper::{ZooKeeperConfig, ZooKeeperLock};
use std::io::Write;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a healed ensemble may take to serve before its members are started anew.
const PATIENCE: Duration = Duration::from_secs(20);

struct Three(Mutex<Ensemble>);

impl Three {
    fn ensemble(&self) -> MutexGuard<'_, Ensemble> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start_anew(&self) -> std::result::Result<(), fencelock_lab::Failure> {
        let mut ensemble = self.ensemble();
        for member in ensemble.members_mut() {
            member.server_mut().kill();
        }
        ensemble.launch()?;
        ensemble.settle()
    }

    /// That a leader is there says less than that a lock can be had.
    async fn serves(&self) -> Result<()> {
        for _ in 0..3 {
            let client = LockClient::new(Self::connect(&self.address()).await?)?;
            client.named(&format!("probe {:x}", fastrand::u64(..))).ttl(Self::TTL).acquire().await?.release().await?;
        }
        Ok(())
    }
}

#[async_trait]
impl Harness for Three {
    const NAME: &'static str = "zookeeper ensemble";
    /// Servers that stood still for longer than syncLimit · tickTime elect a leader
    /// anew, so that is longer than a hold takes to notice that it is in jeopardy.
    const TTL: Duration = Duration::from_millis(6_400);

    async fn start() -> Result<Self> {
        let started = Ensemble::start_with(3, &ZooKeeperSettings::default().with_sync_limit(14));
        started.map(|started| Self(Mutex::new(started))).map_err(|e| failed("the servers did not start", e))
    }

    fn address(&self) -> String {
        let addresses = self.ensemble().addresses();
        format!("zookeeper://{addresses}/app/locks?session=6400ms&request_timeout=2s&connect_timeout=8s")
    }

    async fn connect(address: &str) -> Result<Arc<dyn DistributedLock>> {
        Ok(ZooKeeperLock::connect(ZooKeeperConfig::from_url(&EngineUrl::parse(address)?)?).await?)
    }

    async fn interrupt(&self) -> Result<()> {
        for member in self.ensemble().members() {
            member.server().stop();
        }
        Ok(())
    }

    async fn heal(&self) -> Result<()> {
        for member in self.ensemble().members() {
            member.server().cont();
        }
        Ok(())
    }

    async fn settle(&self) -> Result<()> {
        let settled = self.ensemble().settle();
        if settled.is_ok() && matches!(tokio::time::timeout(PATIENCE, self.serves()).await, Ok(Ok(()))) {
            return Ok(());
        }
        // Seen where the machine stalled while they elected: they agree on a leader, and nobody gets a session.
        let _ = writeln!(std::io::stderr(), "  the members do not serve, and are started anew");
        self.start_anew().map_err(|e| failed("the servers elect no leader", e))?;
        self.serves().await
    }
}

fn failed(what: &str, e: fencelock_lab::Failure) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{what}: {e}"))
}

fn main() -> ExitCode {
    fencelock_testkit::main::<Three>()
}
