//! Where settings come together: the only place that knows which one counts.

use crate::config::{Layer, Origins, ids};
use fencelock_core::{
    AcquireOptions, Assumption, Capability, ClientBuilder, Error, Level, OnDegraded, Requirements, Result, Settings,
    Wait,
};
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
    pub(crate) cohort: Option<u32>,
    pub(crate) clock_drift: Option<u32>,
    pub(crate) require: Option<Level>,
    pub(crate) capabilities: Vec<Capability>,
    pub(crate) forbidden: Vec<Assumption>,
    pub(crate) on_degraded: Option<OnDegraded>,
    pub(crate) reprobe: Option<Duration>,
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
    /// Where each setting that counts was written.
    pub(crate) origins: Origins,
}

/// Puts the `layers` together, weakest first, and `code` over all of them.
pub(crate) fn merge(layers: impl IntoIterator<Item = Layer>, code: Common) -> Result<Merged> {
    let (mut engine, mut origins) = (Settings::default(), Origins::default());
    let (mut attest, mut capabilities, mut forbidden) = (Vec::new(), Vec::new(), Vec::new());
    for mut layer in layers {
        // Lists of all places count together; anything else replaces.
        attest.extend(ids(layer.settings.text("attest")));
        capabilities.extend(take_capabilities(&mut layer.settings)?);
        forbidden.extend(take_forbidden(&mut layer.settings)?);
        engine.overlay(layer.settings);
        origins.overlay(layer.origins);
    }
    let mut common = Common::take(&mut engine)?.overlaid(code, &mut origins);
    attest.append(&mut common.attest);
    attest.sort();
    attest.dedup();
    common.attest = attest;
    common.capabilities.append(&mut capabilities);
    common.forbidden.append(&mut forbidden);
    let defaults = common.options().checked().map_err(|e| origins.locate(e))?;
    Ok(Merged { common, defaults, engine, origins })
}

const CAPABILITIES: [(&str, Capability); 5] = [
    ("fifo", Capability::Fifo),
    ("notified_waiting", Capability::NotifiedWaiting),
    ("push_loss", Capability::PushLoss),
    ("in_store_guard", Capability::InStoreGuard),
    ("cohort", Capability::Cohort),
];

const ASSUMPTIONS: [(&str, Assumption); 4] = [
    ("T1", Assumption::ClockRates),
    ("T2", Assumption::ServerClock),
    ("T3", Assumption::HolderClock),
    ("T4", Assumption::ServerMemory),
];

/// Takes a list of values that have names.
fn take_each<const N: usize, T: Copy>(
    settings: &mut Settings,
    key: &'static str,
    all: [(&'static str, T); N],
) -> Result<Vec<T>> {
    let one = |name: &String| all.iter().find(|(known, _)| known == name).map(|(_, value)| *value);
    let named: Option<Vec<_>> = ids(settings.clone().text(key)).iter().map(one).collect();
    if let Some(named) = named {
        settings.text(key);
        return Ok(named);
    }
    // Tells the place and the nearest one.
    settings.choice(key, &all.map(|(name, _)| name))?;
    Ok(Vec::new())
}

fn take_capabilities(settings: &mut Settings) -> Result<Vec<Capability>> {
    take_each(settings, "require_capability", CAPABILITIES)
}

fn take_forbidden(settings: &mut Settings) -> Result<Vec<Assumption>> {
    take_each(settings, "forbid", ASSUMPTIONS)
}

/// Refuses one value of the list `key`, written at `place`, that is none.
pub(crate) fn check_each(key: &str, text: &str, place: &str) -> Result<()> {
    let mut one = Settings::default();
    one.set(key, text, place.to_owned());
    take_capabilities(&mut one)?;
    take_forbidden(&mut one).map(drop)
}

fn take_on_degraded(settings: &mut Settings) -> Result<Option<OnDegraded>> {
    let chosen = settings.choice("on_degraded", &["warn", "refuse"])?;
    Ok(chosen.map(|chosen| if chosen == "refuse" { OnDegraded::Refuse } else { OnDegraded::Warn }))
}

fn take_wait(settings: &mut Settings) -> Result<Option<Wait>> {
    const KEY: &str = "wait_at_most";
    if settings.clone().text(KEY).as_deref() == Some("forever") {
        settings.text(KEY);
        return Ok(Some(Wait::Forever));
    }
    let or_forever = |e: Error| Error::new(e.kind(), format!("{}; or `forever`", e.message()));
    Ok(settings.duration(KEY).map_err(or_forever)?.map(Wait::AtMost))
}

impl Common {
    /// Takes the common settings out of `settings`, which keeps the engine's own.
    fn take(settings: &mut Settings) -> Result<Self> {
        let levels = Level::ALL.map(Level::as_str);
        Ok(Self {
            holder: settings.text("holder").map(Into::into),
            ttl: settings.duration("ttl")?,
            wait: take_wait(settings)?,
            max_hold: settings.duration("max_hold")?,
            lock_delay: settings.duration("lock_delay")?,
            cohort: settings.number("cohort")?,
            clock_drift: settings.number("clock_drift")?,
            require: settings.choice("require", &levels)?.map(str::parse).transpose()?,
            // Taken layer by layer before; asked for again so that a misspelt one is told of them.
            capabilities: take_capabilities(settings)?,
            forbidden: take_forbidden(settings)?,
            on_degraded: take_on_degraded(settings)?,
            reprobe: settings.duration("reprobe")?,
            attest: ids(settings.text("attest")),
        })
    }

    fn overlaid(mut self, top: Self, origins: &mut Origins) -> Self {
        for (key, counts) in [
            ("ttl", top.ttl.is_some()),
            ("max_hold", top.max_hold.is_some()),
            ("lock_delay", top.lock_delay.is_some()),
            ("cohort", top.cohort.is_some()),
            ("clock_drift", top.clock_drift.is_some()),
            ("reprobe", top.reprobe.is_some()),
        ] {
            if counts {
                origins.forget(key);
            }
        }
        self.capabilities.extend(top.capabilities);
        self.attest.extend(top.attest);
        self.forbidden.extend(top.forbidden);
        Self {
            holder: top.holder.or(self.holder),
            ttl: top.ttl.or(self.ttl),
            wait: top.wait.or(self.wait),
            max_hold: top.max_hold.or(self.max_hold),
            lock_delay: top.lock_delay.or(self.lock_delay),
            cohort: top.cohort.or(self.cohort),
            clock_drift: top.clock_drift.or(self.clock_drift),
            require: top.require.or(self.require),
            capabilities: self.capabilities,
            forbidden: self.forbidden,
            on_degraded: top.on_degraded.or(self.on_degraded),
            reprobe: top.reprobe.or(self.reprobe),
            attest: self.attest,
        }
    }

    /// What the deployment has to give.
    pub(crate) fn requirements(&self) -> Requirements {
        // Without a level there is no exclusion at all, so the least is always required.
        let level = self.require.unwrap_or(Level::Advisory);
        let wanted = Requirements::default().with_level(level);
        let wanted = self.capabilities.iter().fold(wanted, |wanted, capability| wanted.with_capability(*capability));
        self.forbidden.iter().fold(wanted, |wanted, assumption| wanted.with_forbidden(*assumption))
    }

    /// Sets up a client as was said.
    pub(crate) fn apply(self, client: ClientBuilder) -> ClientBuilder {
        let mut client = client.requirements(self.requirements()).on_degraded(self.on_degraded.unwrap_or_default());
        if let Some(interval) = self.reprobe {
            client = client.reprobe(interval);
        }
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
        options.cohort = self.cohort.unwrap_or(options.cohort);
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assumptions_are_called_what_they_print() {
        assert!(ASSUMPTIONS.iter().all(|(name, assumption)| *name == assumption.id()));
        assert!(ASSUMPTIONS.map(|(_, assumption)| assumption) == Assumption::ALL);
    }

    #[test]
    fn capabilities_are_called_what_they_print() {
        assert!(CAPABILITIES.iter().all(|(name, capability)| *name == capability.to_string()));
        assert!(CAPABILITIES.map(|(_, capability)| capability) == Capability::ALL);
    }
}
