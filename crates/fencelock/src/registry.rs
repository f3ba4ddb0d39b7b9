//! Which scheme leads to which engine.

use crate::engines;
use fencelock_core::{DistributedLock, EngineUrl, Error, ErrorKind, Result, did_you_mean};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// An engine on its way.
pub type Connecting = Pin<Box<dyn Future<Output = Result<Arc<dyn DistributedLock>>> + Send>>;

type Factory = Arc<dyn Fn(Target) -> Connecting + Send + Sync>;

/// What an engine is made from.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Target {
    /// The URL. Its settings are the engine's own; the common ones have been taken out.
    /// Where there are hosts, user and password are those that count, wherever they were written.
    pub url: EngineUrl,
    /// The rules that the configuration attests, for [`Guarantees::attest`](crate::Guarantees::attest).
    pub attest: Vec<String>,
}

impl Target {
    pub(crate) fn new(url: EngineUrl, attest: Vec<String>) -> Self {
        Self { url, attest }
    }
}

/// The engines that a URL can lead to: a plain value, each builder has its own.
///
/// ```
/// use fencelock::memory::MemoryLock;
/// use fencelock::{DistributedLock, Registry};
/// use std::sync::Arc;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> fencelock::Result<()> {
/// let shared: Arc<dyn DistributedLock> = Arc::new(MemoryLock::new());
/// let registry = Registry::builtin().with("mine", move |target| {
///     let engine = Arc::clone(&shared);
///     async move {
///         target.url.settings.finish()?; // refuses what the engine does not know
///         Ok(engine)
///     }
/// });
/// let one = fencelock::builder("mine:").registry(registry.clone()).connect().await?;
/// let two = fencelock::builder("mine:").registry(registry).connect().await?;
/// let guard = one.acquire("orders/1001").await?;
/// assert!(two.try_acquire("orders/1001").await?.is_none());
/// # drop(guard); Ok(()) }
/// ```
#[derive(Clone)]
pub struct Registry {
    factories: BTreeMap<String, Factory>,
    /// The schemes that somebody else has an engine for.
    others: BTreeSet<String>,
}

impl Registry {
    /// No engine at all.
    #[must_use]
    pub fn empty() -> Self {
        Self { factories: BTreeMap::new(), others: BTreeSet::new() }
    }

    /// The engines that were compiled in.
    #[must_use]
    pub fn builtin() -> Self {
        let builtin = engines::compiled_in();
        Self {
            others: BTreeSet::new(),
            ..builtin.fold(Self::empty(), |all, (scheme, factory)| all.with(scheme, factory))
        }
    }

    /// Lets `scheme` lead to what `factory` makes, instead of what it led to before.
    ///
    /// A scheme has ASCII letters, digits and `+`; case does not matter. The
    /// factory takes every setting that it knows and ends with
    /// [`Settings::finish`](crate::Settings::finish), so that a misspelt one is
    /// refused, and it applies the target's attestations.
    #[must_use]
    pub fn with<F, C>(mut self, scheme: impl Into<String>, factory: F) -> Self
    where
        F: Fn(Target) -> C + Send + Sync + 'static,
        C: Future<Output = Result<Arc<dyn DistributedLock>>> + Send + 'static,
    {
        let factory: Factory = Arc::new(move |target| Box::pin(factory(target)));
        let scheme = scheme.into().to_ascii_lowercase();
        self.others.insert(scheme.clone());
        self.factories.insert(scheme, factory);
        self
    }

    /// The schemes that lead to an engine, in alphabetical order.
    pub fn schemes(&self) -> impl Iterator<Item = &str> {
        self.factories.keys().map(String::as_str)
    }

    /// The engines that may be configured: those that are here, and those that were left out.
    pub(crate) fn engines(&self) -> Vec<String> {
        let schemes = self.schemes().chain(engines::left_out().map(|(scheme, _)| scheme));
        let mut names: Vec<_> = schemes.map(|scheme| engines::table_of(scheme).to_owned()).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Whether the table of `engine` is that of the engine of this workspace.
    pub(crate) fn is_builtin(&self, engine: &str) -> bool {
        !self.others.iter().any(|scheme| engines::table_of(scheme) == engine)
    }

    /// Makes the engine that the target's scheme leads to.
    pub(crate) async fn connect(&self, target: Target) -> Result<Arc<dyn DistributedLock>> {
        let Some(factory) = self.factories.get(&target.url.scheme) else {
            return Err(self.no_engine(&target.url.scheme));
        };
        factory(target).await
    }

    fn no_engine(&self, scheme: &str) -> Error {
        let message = match engines::left_out().find(|(left_out, _)| *left_out == scheme) {
            Some((_, feature)) => {
                format!(
                    "`{scheme}:` needs the cargo feature `{feature}` of the crate `fencelock`, which is not enabled"
                )
            }
            None => {
                let right = self.schemes().chain(engines::left_out().map(|(scheme, _)| scheme));
                format!("`{scheme}:` leads to no engine{}", did_you_mean(scheme, right))
            }
        };
        Error::new(ErrorKind::InvalidConfig, message)
    }
}

impl Default for Registry {
    /// The engines that were compiled in.
    fn default() -> Self {
        Self::builtin()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.factories.keys()).finish()
    }
}
