//! What an engine's author gives to the suite.

use async_trait::async_trait;
use fencelock_core::{DistributedLock, Error, ErrorKind, LockName, Result};
use std::sync::Arc;
use std::time::Duration;

/// One engine with a service of its own, and the faults that can be done to it.
///
/// The service is started once for a run of the suite and shared by all cases.
/// Cases that interrupt it run alone. Dropping the harness ends the service.
///
/// A service that cannot be started is an error that fails every case: nothing
/// is ever skipped.
#[async_trait]
pub trait Harness: Sized + Send + Sync + 'static {
    /// The engine's name, as reports show it.
    const NAME: &'static str;

    /// The ttl that the cases work with: the default is 800 ms. Set it to the
    /// shortest that the deployment grants as asked, where that is longer. The
    /// suite's own time grows with it.
    const TTL: Duration = Duration::from_millis(800);

    /// Starts the service, or makes the file.
    ///
    /// # Errors
    /// Whatever keeps it from starting; every case then fails with it.
    async fn start() -> Result<Self>;

    /// Where the service is: all that a child process will know.
    fn address(&self) -> String;

    /// A fresh connection that shares nothing with any other in this process.
    ///
    /// # Errors
    /// What kept it from connecting.
    async fn connect(address: &str) -> Result<Arc<dyn DistributedLock>>;

    /// From when this returns the service answers nobody: requests hang, or fail
    /// with no answer (stop its process, cut the connections, lock its file).
    ///
    /// It must not lose what it has acknowledged. A service that hangs is the
    /// harder test, since connections stay open.
    ///
    /// # Errors
    /// Any, which fails the case.
    async fn interrupt(&self) -> Result<()>;

    /// The service answers again. Called after each case that may have
    /// interrupted it, even if it did not: then there is nothing to do.
    ///
    /// # Errors
    /// Any, which fails the case.
    async fn heal(&self) -> Result<()>;

    /// Waits until a service that was healed serves steadily. Nothing to do by default.
    ///
    /// A service of several members may answer at first, and then elect a leader: whatever
    /// was told in between is told by nobody for a while. Cases that ask at once whether a lock
    /// is free wait for this.
    ///
    /// # Errors
    /// Any, which fails the case.
    async fn settle(&self) -> Result<()> {
        Ok(())
    }

    /// Takes `name` away from its holder at the service, as an operator would.
    ///
    /// By default through [`Admin::force_release`](fencelock_core::Admin::force_release)
    /// on a new connection; an engine that has no `Admin` must do it another way.
    ///
    /// # Errors
    /// `Unsupported` where nothing is overridden and there is no `Admin`.
    async fn seize(&self, name: &LockName) -> Result<()> {
        let engine = Self::connect(&self.address()).await?;
        let Some(admin) = engine.admin() else {
            return Err(Error::new(ErrorKind::Unsupported, "no Admin here, so the harness must override `seize`"));
        };
        if admin.force_release(name).await? {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Engine, "nobody held the lock that was to be seized").with_name(name))
    }
}

/// A harness whose type is forgotten, so that cases are plain functions.
#[async_trait]
pub(crate) trait Bench: Send + Sync {
    fn ttl(&self) -> Duration;
    fn address(&self) -> String;
    async fn connect(&self) -> Result<Arc<dyn DistributedLock>>;
    async fn interrupt(&self) -> Result<()>;
    async fn heal(&self) -> Result<()>;
    async fn settle(&self) -> Result<()>;
    async fn seize(&self, name: &LockName) -> Result<()>;
}

#[async_trait]
impl<H: Harness> Bench for H {
    fn ttl(&self) -> Duration {
        H::TTL
    }

    fn address(&self) -> String {
        Harness::address(self)
    }

    async fn connect(&self) -> Result<Arc<dyn DistributedLock>> {
        H::connect(&Harness::address(self)).await
    }

    async fn interrupt(&self) -> Result<()> {
        Harness::interrupt(self).await
    }

    async fn heal(&self) -> Result<()> {
        Harness::heal(self).await
    }

    async fn settle(&self) -> Result<()> {
        Harness::settle(self).await
    }

    async fn seize(&self, name: &LockName) -> Result<()> {
        Harness::seize(self, name).await
    }
}
