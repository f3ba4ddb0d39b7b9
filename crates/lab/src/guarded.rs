//! Whether what is behind a gate lost an update, over everything that was tried on
//! deployments which promise that it does not.

use crate::experiment::Asked;
use crate::report::Report;
use fencelock::Level;
use fencelock_testkit::history::Property;
use serde::Serialize;

/// Over all experiments on deployments of level fenced or more, and those of mixed faults among them.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Guarded {
    pub(crate) experiments: usize,
    /// How long workers worked, and for how long of that a fault was under way, in minutes.
    pub(crate) minutes: f64,
    pub(crate) fault_minutes: f64,
    pub(crate) mixed_minutes: f64,
    pub(crate) faults: u64,
    /// Updates behind a gate that were acknowledged, and how many of them are lost.
    pub(crate) updates: u64,
    pub(crate) lost: u64,
    /// Attempts of those who had lost their lock, and how many were accepted.
    pub(crate) stale: u64,
    pub(crate) accepted: u64,
}

impl Guarded {
    pub(crate) fn of(reports: &[Report]) -> Self {
        let mut all = Self::default();
        let promise = |report: &&Report| report.found.level().is_some_and(|level| level >= Level::Fenced);
        for report in reports.iter().filter(promise).filter(|report| !report.experiment.wrong) {
            let Some(first) = report.rows.first() else { continue };
            // Where nothing behind a gate was touched, nothing is shown.
            let row = |property| report.rows.iter().find(|row| row.property == Asked::Of(property) && row.asked > 0);
            let Some(updates) = row(Property::G2) else { continue };
            all.experiments += 1;
            all.minutes += first.ran / 60.0;
            all.fault_minutes += first.faulted / 60.0;
            all.mixed_minutes += if report.experiment.mixed.is_empty() { 0.0 } else { first.ran / 60.0 };
            all.faults += u64::from(first.hits);
            all.updates += updates.asked;
            all.lost += updates.broken;
            if let Some(stale) = row(Property::G1) {
                all.stale += stale.asked;
                all.accepted += stale.broken;
            }
        }
        all
    }

    /// In a sentence.
    pub(crate) fn told(&self) -> String {
        format!(
            "Behind gates, on deployments that promise fenced or more: {} updates in {} experiments, {} lost; {} stale \
             attempts, {} accepted; {:.1} minutes of work, {:.1} of them of mixed faults; {} faults met a hold or a \
             waiter, and one was under way for {:.1} minutes",
            self.updates,
            self.experiments,
            self.lost,
            self.stale,
            self.accepted,
            self.minutes,
            self.mixed_minutes,
            self.faults,
            self.fault_minutes
        )
    }
}
