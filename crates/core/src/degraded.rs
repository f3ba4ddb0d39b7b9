//! Noticing that a deployment gives less than it did.

use crate::client::Shared;
use crate::schedule::Schedule;
use crate::sync::lock;
use crate::{DistributedLock, Guarantees, OnDegraded, Requirements, Result};
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// How long one probe may take, however often there is one.
const PROBE: Duration = Duration::from_secs(30);

/// Compares what the engine says of itself now with what was required.
pub(crate) struct Watch {
    engine: Arc<dyn DistributedLock>,
    requirements: Requirements,
    on_degraded: OnDegraded,
    seen: Mutex<Seen>,
}

struct Seen {
    guarantees: Arc<Guarantees>,
    /// It does not give what was required.
    falls_short: bool,
}

impl Watch {
    /// # Errors
    /// `Refused` if the deployment does not give what is required from the start.
    pub(crate) fn new(
        engine: Arc<dyn DistributedLock>,
        requirements: Requirements,
        on_degraded: OnDegraded,
    ) -> Result<Self> {
        let guarantees = engine.guarantees();
        requirements.check(&guarantees)?;
        let seen = Mutex::new(Seen { guarantees, falls_short: false });
        Ok(Self { engine, requirements, on_degraded, seen })
    }

    /// Looks at what the engine says now; a change is traced once.
    ///
    /// # Errors
    /// `Refused` if it is less than was required, and that is to be refused.
    pub(crate) fn check(&self) -> Result<()> {
        let (now, falls_short, changed) = {
            let mut seen = lock(&self.seen);
            // Asked inside the lock, or an answer that is old by now could be taken for a change back.
            let now = self.engine.guarantees();
            let mut changed = None;
            if !Arc::ptr_eq(&seen.guarantees, &now) {
                let verdict = self.requirements.check(&now);
                let is = Seen { guarantees: Arc::clone(&now), falls_short: verdict.is_err() };
                let was = std::mem::replace(&mut *seen, is);
                changed = (*was.guarantees != *now).then_some((was, verdict));
            }
            (now, seen.falls_short, changed)
        };
        // Told outside of the lock.
        if let Some((was, verdict)) = changed {
            trace(&was, &now, verdict.as_ref().err());
        }
        if falls_short && self.on_degraded == OnDegraded::Refuse { self.requirements.check(&now) } else { Ok(()) }
    }
}

fn trace(before: &Seen, now: &Guarantees, refusal: Option<&crate::Error>) {
    let level = |found: &Guarantees| found.level().map_or("none", crate::Level::as_str);
    let (engine, deployment, from, to) = (now.engine(), now.deployment(), level(&before.guarantees), level(now));
    match refusal {
        Some(why) => tracing::warn!(target: "fencelock", event = "degraded", engine, deployment, from, to,
            why = why.message(), "the deployment no longer gives what was required"),
        None if before.falls_short => tracing::info!(target: "fencelock", event = "restored", engine, deployment, from,
            to, "the deployment gives again what was required"),
        None if now.level() < before.guarantees.level() => tracing::warn!(target: "fencelock", event = "level_lowered",
            engine, deployment, from, to, "the deployment gives less than before, and still what was required"),
        None => tracing::info!(target: "fencelock", event = "guarantees_changed", engine, deployment, from, to,
            "the deployment has changed"),
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("requirements", &self.requirements)
            .field("on_degraded", &self.on_degraded)
            .finish_non_exhaustive()
    }
}

/// Looks, and tells the holds if what is given no longer suffices.
pub(crate) fn look(watch: &Watch, schedule: &Schedule) {
    if watch.check().is_err() {
        schedule.degrade();
    }
}

/// Probes every so often, for as long as there is a client.
pub(crate) async fn probe_every(interval: Duration, client: Weak<Shared>) {
    loop {
        tokio::time::sleep(interval).await;
        if client.strong_count() == 0 {
            return;
        }
        // A task of its own, so that an engine that panics is one probe without an answer and not the last probe.
        match tokio::spawn(probe_once(Weak::clone(&client))).await {
            Ok(()) => {}
            Err(e) if e.is_panic() => {
                tracing::warn!(target: "fencelock", event = "not_probed", error = "the engine panicked", "no answer to a probe");
            }
            // The runtime ends.
            Err(_) => return,
        }
    }
}

async fn probe_once(client: Weak<Shared>) {
    let Some(engine) = client.upgrade().map(|shared| Arc::clone(&shared.engine)) else { return };
    let probed = tokio::time::timeout(PROBE, engine.probe()).await;
    drop(engine);
    match probed {
        Ok(Ok(_)) => {}
        Ok(Err(e)) => tracing::debug!(target: "fencelock", event = "not_probed", error = %e, "no answer to a probe"),
        Err(_) => tracing::debug!(target: "fencelock", event = "not_probed", "no answer to a probe"),
    }
    let Some(shared) = client.upgrade() else { return };
    look(&shared.watch, &shared.context.schedule);
}
