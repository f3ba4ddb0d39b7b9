//! Where settings come together: the only place that knows which one counts.

use fencelock_core::{AcquireOptions, Capability, ClientBuilder, Level, Result, Settings, Wait};
use std::sync::Arc;
use std::time::Duration;

/// What means the same for every engine; `None` where nothing was said.
#[derive(Debug, Default)]
pub(crate) struct Common {
    pub(crate) holder: Option<Arc<str>>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) wait: Option<Wait>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) lock_delay: Option<Duration>,
    pub(crate) clock_drift: Option<u32>,
    pub(crate) require: Option<Level>,
    pub(crate) capabilities: Vec<Capability>,
    pub(crate) attest: Vec<String>,
}

/// Everything that was said, put together.
#[derive(Debug)]
pub(crate) struct Merged {
    pub(crate) common: Common,
    /// The acquire options that come of it, within their bounds.
    pub(crate) defaults: AcquireOptions,
    /// What is left for the engine.
    pub(crate) engine: Settings,
}

/// Puts the `layers` together, weakest first, and `code` over all of them.
pub(crate) fn merge(layers: impl IntoIterator<Item = Settings>, code: Common) -> Result<Merged> {
    let mut engine = Settings::default();
    let mut attest = Vec::new();
    for mut layer in layers {
        // Attestations of all places count together; anything else replaces.
        attest.extend(ids(layer.text("attest")));
        engine.overlay(layer);
    }
    let mut common = Common::take(&mut engine)?.overlaid(code);
    attest.append(&mut common.attest);
    attest.sort();
    attest.dedup();
    common.attest = attest;
    let defaults = common.options().checked()?;
    Ok(Merged { common, defaults, engine })
}

fn ids(text: Option<String>) -> Vec<String> {
    let text = text.unwrap_or_default();
    text.split(',').map(str::trim).filter(|id| !id.is_empty()).map(str::to_owned).collect()
}

impl Common {
    /// Takes the common settings out of `settings`, which keeps the engine's own.
    fn take(settings: &mut Settings) -> Result<Self> {
        let levels = Level::ALL.map(Level::as_str);
        Ok(Self {
            holder: settings.text("holder").map(Into::into),
            ttl: settings.duration("ttl")?,
            wait: settings.duration("wait_at_most")?.map(Wait::AtMost),
            max_hold: settings.duration("max_hold")?,
            lock_delay: settings.duration("lock_delay")?,
            clock_drift: None,
            require: settings.choice("require", &levels)?.map(str::parse).transpose()?,
            capabilities: Vec::new(),
            // Taken layer by layer before; asked for again so that a misspelt one is told of it.
            attest: ids(settings.text("attest")),
        })
    }

    fn overlaid(mut self, top: Self) -> Self {
        self.capabilities.extend(top.capabilities);
        self.attest.extend(top.attest);
        Self {
            holder: top.holder.or(self.holder),
            ttl: top.ttl.or(self.ttl),
            wait: top.wait.or(self.wait),
            max_hold: top.max_hold.or(self.max_hold),
            lock_delay: top.lock_delay.or(self.lock_delay),
            clock_drift: top.clock_drift.or(self.clock_drift),
            require: top.require.or(self.require),
            capabilities: self.capabilities,
            attest: self.attest,
        }
    }

    /// Sets up a client as was said.
    pub(crate) fn apply(self, mut client: ClientBuilder) -> ClientBuilder {
        if let Some(holder) = self.holder {
            client = client.holder(holder);
        }
        if let Some(ppm) = self.clock_drift {
            client = client.clock_drift(ppm);
        }
        client
    }

    fn options(&self) -> AcquireOptions {
        let mut options = AcquireOptions::default();
        options.ttl = self.ttl.unwrap_or(options.ttl);
        options.wait = self.wait.unwrap_or(options.wait);
        options.max_hold = self.max_hold.or(options.max_hold);
        options.lock_delay = self.lock_delay.unwrap_or(options.lock_delay);
        options
    }
}
