//! A client, set up in code.

use crate::config::{Layer, Names, Origins, from_files, from_url, into_url, parse_url, placed, refuse};
use crate::merge::{Common, Merged, merge};
use crate::registry::{Registry, Target};
use fencelock_core::{
    AcquireOptions, Assumption, Capability, DistributedLock, EngineUrl, Error, ErrorKind, Guarantees, Level,
    LockClient, OnDegraded, Result, Settings, Wait, check_runtime,
};
use std::sync::Arc;
use std::time::Duration;

/// Sets up a [`LockClient`] for a URL.
///
/// Precedence, weakest first: the defaults of
/// [`AcquireOptions`](crate::AcquireOptions), file and environment where it comes
/// from a [`Config`](crate::Config), URL parameters, what is set here.
/// Attestations of all of these count together, and so do required capabilities and forbidden assumptions.
/// `Debug` shows no password.
#[derive(Debug)]
#[must_use = "connect it to get a client"]
pub struct Builder {
    url: Result<EngineUrl>,
    /// Where the URL was written, if not in code.
    place: Option<String>,
    /// File and environment, weakest first.
    layers: Vec<Layer>,
    names: Names,
    settings: Settings,
    common: Common,
    registry: Registry,
}

impl Builder {
    pub(crate) fn new(url: &str) -> Self {
        Self::configured(parse_url(url), None, Vec::new(), Names::default())
    }

    pub(crate) fn configured(url: Result<EngineUrl>, place: Option<String>, layers: Vec<Layer>, names: Names) -> Self {
        let (settings, common, registry) = (Settings::default(), Common::default(), Registry::builtin());
        Self { url, place, layers, names, settings, common, registry }
    }

    /// Refuses to connect to a deployment that does not give `level`; `Advisory` unless set.
    pub fn require(mut self, level: Level) -> Self {
        self.common.require = Some(level);
        self
    }

    /// Refuses to connect to an engine without `capability`; may be called for several.
    pub fn require_capability(mut self, capability: Capability) -> Self {
        self.common.capabilities.push(capability);
        self
    }

    /// Refuses to connect to a deployment whose promise leans on `assumption`; may be called for several.
    pub fn forbid(mut self, assumption: Assumption) -> Self {
        self.common.forbidden.push(assumption);
        self
    }

    /// What to do when the deployment no longer gives what was required: a
    /// warning unless set. [`OnDegraded::Refuse`] ends holds and refuses acquires.
    pub fn on_degraded(mut self, reaction: OnDegraded) -> Self {
        self.common.on_degraded = Some(reaction);
        self
    }

    /// Probes the deployment this often, 1 s at least, besides after each
    /// reconnect; never unless set.
    pub fn reprobe(mut self, interval: Duration) -> Self {
        self.common.reprobe = Some(interval);
        self
    }

    /// Says of the rule `id` that it holds in this deployment, where the engine
    /// cannot see that by itself; may be called for several.
    ///
    /// The refusal of a level names the rules that can be attested. What the engine
    /// found not to be so is refused all the same.
    /// [`LockClient::guarantees`] shows ever after that it was you who said so.
    pub fn attest(mut self, id: impl Into<String>) -> Self {
        self.common.attest.push(id.into());
        self
    }

    /// Sets a setting by its name in the URL: one of the engine's own, or a common one.
    pub fn set(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.set(key, value, "code");
        self
    }

    /// Who this program says it is, for others to see; `host:process id` unless set.
    pub fn holder(mut self, holder: impl Into<Arc<str>>) -> Self {
        self.common.holder = Some(holder.into());
        self
    }

    /// Time to live of a hold: 50 ms to 7 days, rounded up to milliseconds; 30 s unless set.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.common.ttl = Some(ttl);
        self
    }

    /// How long an acquire waits for another holder; 30 s unless set, zero tries once.
    pub fn wait_at_most(mut self, limit: Duration) -> Self {
        self.common.wait = Some(Wait::AtMost(limit));
        self
    }

    /// Waits for another holder without limit; see [`Wait::Forever`].
    pub fn wait_forever(mut self) -> Self {
        self.common.wait = Some(Wait::Forever);
        self
    }

    /// The longest hold, after which the lock is lost however well it is renewed;
    /// none unless set. Set one, so that a hung job cannot hold for ever.
    pub fn max_hold(mut self, longest: Duration) -> Self {
        self.common.max_hold = Some(longest);
        self
    }

    /// Keeps a lock that was freed by failure from others for `delay` after the
    /// holder's deadline, 7 days at most; none unless set.
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.common.lock_delay = Some(delay);
        self
    }

    /// How often a lock that is released may pass from one waiter of this client to the next
    /// before the server has it back; never unless set, [`MAX_COHORT`](crate::MAX_COHORT) at most.
    /// [`connect`](Self::connect) refuses it where the engine has no
    /// [`Capability::Cohort`]; see [`AcquireOptions::cohort`](crate::AcquireOptions::cohort).
    pub fn cohort(mut self, most: u32) -> Self {
        self.common.cohort = Some(most);
        self
    }

    /// How far the rates of this host's clock and the server's may differ, in
    /// parts per million; 10,000 (1 %) unless set, 500,000 at most.
    pub fn clock_drift(mut self, ppm: u32) -> Self {
        self.common.clock_drift = Some(ppm);
        self
    }

    /// The engines to choose from; [`Registry::builtin`] unless set.
    pub fn registry(mut self, registry: Registry) -> Self {
        self.registry = registry;
        self
    }

    /// Connects, probes the deployment, and refuses it if it does not give what was required.
    ///
    /// The client belongs to the tokio runtime that this is awaited on.
    ///
    /// # Errors
    /// `InvalidConfig` for what is wrong with the URL, its scheme, a setting or
    /// an attestation; `Refused` if the deployment gives less than was required, has no
    /// [cohort](Self::cohort) where one is asked for, or is found not to be what was attested;
    /// `Unavailable` or `Denied` if the service cannot be reached or does not let
    /// us in; `Unavailable` outside a tokio runtime. None of them holds a password.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing locked.
    pub async fn connect(self) -> Result<LockClient> {
        self.connected().await.map_err(|e| e.with_operation("connect"))
    }

    /// Connects, and tells what the deployment guarantees, however much less that is than was required.
    ///
    /// For showing it, as `fencelock check` does: what was required and what was
    /// forbidden is passed over, and so is an attestation of what is no rule there
    /// or of what the engine found not to be so, which comes out as refused.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect), apart from what that says of requirements and attestations.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing locked.
    pub async fn probe(self) -> Result<Guarantees> {
        let reach = async {
            let reached = self.reach(false).await?;
            let found = Guarantees::clone(&reached.engine.guarantees());
            Ok(found.attest_again(&reached.common.attest))
        };
        reach.await.map_err(|e: Error| e.with_operation("probe"))
    }

    async fn connected(self) -> Result<LockClient> {
        let Reached { engine, common, defaults, origins } = self.reach(true).await?;
        // Whatever the engine does with attestations, those of what is no rule of it are refused.
        Guarantees::clone(&engine.guarantees()).attest(&common.attest).map_err(|e| origins.locate(e))?;
        let client = common.apply(LockClient::builder(engine).defaults(defaults)).build();
        client.map_err(|e| origins.locate(e))
    }

    /// Connects the engine, with or without what was attested.
    async fn reach(self, attesting: bool) -> Result<Reached> {
        check_runtime()?;
        let Self { url, place, layers, names, settings, common, registry } = self;
        let url = url?;
        names.check(&registry)?;
        let whole = put_together(url, layers, settings, common).await.map_err(|e| in_url(place.as_deref(), e))?;
        let (url, Merged { common, defaults, origins, .. }) = whole;
        // What is wrong with no setting is wrong with the URL.
        let locate = |e: Error| match (in_url(place.as_deref(), origins.locate(e)), &place) {
            (e, Some(place)) if e.kind() == ErrorKind::InvalidConfig && !origins.is_placed(&e) => {
                placed(&format!("{place}: `url`"), e)
            }
            (e, _) => e,
        };
        let attest = if attesting { common.attest.clone() } else { Vec::new() };
        let engine = registry.connect(Target::new(url, attest)).await.map_err(locate)?;
        Ok(Reached { engine, common, defaults, origins })
    }
}

/// An engine that is connected, and what remains to be done with it.
struct Reached {
    engine: Arc<dyn DistributedLock>,
    common: Common,
    defaults: AcquireOptions,
    origins: Origins,
}

/// Says where the URL was written whose parameter, user or password is wrong.
fn in_url(place: Option<&str>, error: Error) -> Error {
    match place {
        Some(place) if error.message().starts_with("URL") => placed(place, error),
        _ => error,
    }
}

/// Puts all sources of settings together, and the engine's own into the URL.
async fn put_together(
    mut url: EngineUrl,
    mut layers: Vec<Layer>,
    code: Settings,
    common: Common,
) -> Result<(EngineUrl, Merged)> {
    // User and password belong to hosts.
    let has_hosts = !url.hosts.is_empty();
    if !has_hosts {
        refuse(&layers)?;
    }
    let mut parameters = Layer::of(std::mem::take(&mut url.settings), "URL parameter");
    if has_hosts {
        from_url(&mut url, &mut parameters)?;
    }
    layers.extend([parameters, Layer::of(code, "code")]);
    if has_hosts {
        from_files(&mut layers).await?;
    }
    let mut merged = merge(layers, common)?;
    if has_hosts {
        into_url(&mut merged.engine, &mut url);
    }
    url.settings = std::mem::take(&mut merged.engine);
    Ok((url, merged))
}
