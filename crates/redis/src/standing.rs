//! What the deployment is known to give, and finding it out anew.

use crate::config::RedisConfig;
use crate::link::lock;
use crate::probe::Probe;
use crate::store::Store;
use fencelock_core::{Guarantees, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

/// What lies between attempts to ask anew: from the first to the second, doubling.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

#[derive(Default)]
pub(crate) struct Standing {
    guarantees: RwLock<Option<Arc<Guarantees>>>,
    /// A replica or a Sentinel was seen at some time: it may come back when nobody looks.
    seen: AtomicBool,
    /// Every server has answered the last probe.
    known: AtomicBool,
    probing: Mutex<Probing>,
}

#[derive(Default)]
struct Probing {
    running: bool,
    again: bool,
}

impl Standing {
    pub(crate) fn guarantees(&self) -> Arc<Guarantees> {
        let known = self.guarantees.read().unwrap_or_else(PoisonError::into_inner).clone();
        known.unwrap_or_else(|| Arc::new(Probe::nothing_known()))
    }

    pub(crate) fn is_known(&self) -> bool {
        self.known.load(Ordering::SeqCst)
    }

    fn note(&self, probe: &Probe) {
        self.known.store(probe.is_whole(), Ordering::SeqCst);
        if probe.sees_replication() {
            self.seen.store(true, Ordering::SeqCst);
        }
    }

    fn found(&self, probe: &Probe, config: &RedisConfig) -> Guarantees {
        probe.guarantees(config, self.seen.load(Ordering::SeqCst))
    }

    fn set(&self, found: Guarantees) {
        *self.guarantees.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(found));
    }

    /// What was found counts from now on, be it nothing.
    fn replace(&self, probe: &Probe, config: &RedisConfig) {
        self.note(probe);
        let before = self.guarantees();
        let found = self.found(probe, config).attest_again(&config.attested);
        if before.level() > found.level() {
            tracing::warn!(target: "fencelock", event = "level_lowered", engine = "redis",
                deployment = found.deployment(), "after a reconnect the deployment gives less than before");
        }
        self.set(found);
    }

    fn begin(&self) -> bool {
        let mut probing = lock(&self.probing);
        probing.again = probing.running;
        !std::mem::replace(&mut probing.running, true)
    }

    /// True if nobody has asked for another meanwhile.
    fn is_over(&self) -> bool {
        let mut probing = lock(&self.probing);
        probing.running = std::mem::take(&mut probing.again);
        !probing.running
    }
}

impl Store {
    /// The probe at connect, whose failure is the connect's.
    pub(crate) async fn probe_first(&self) -> Result<()> {
        let probe = Probe::run(self).await?;
        probe.check(&self.config)?;
        self.standing.note(&probe);
        self.standing.set(self.standing.found(&probe, &self.config).attest(&self.config.attested)?);
        Ok(())
    }

    /// The probe that was asked for.
    pub(crate) async fn probe(&self) -> Result<Arc<Guarantees>> {
        let probe = Probe::run(self).await?;
        self.standing.replace(&probe, &self.config);
        Ok(self.standing.guarantees())
    }
}

/// Asks anew in the background, until every server has answered. What cannot be
/// asked is not known: the old answers count no more.
pub(crate) fn probe_again(store: &Arc<Store>) {
    if !store.standing.begin() {
        return;
    }
    let store = Arc::downgrade(store);
    tokio::spawn(async move {
        let mut pause = PAUSES.0;
        while let Some(store) = store.upgrade() {
            let probe = Probe::run(&store).await.unwrap_or_else(|failure| {
                tracing::debug!(target: "fencelock", engine = "redis", error = %failure.error, "not probed");
                Probe::default()
            });
            store.standing.replace(&probe, &store.config);
            if probe.is_whole() {
                if store.standing.is_over() {
                    return;
                }
                pause = PAUSES.0;
                continue;
            }
            drop(store);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    });
}
