//! Measures, for whichever recorder the program has set for the crate `metrics`.

use crate::{Ended, ErrorKind};
use metrics::{Gauge, counter, gauge, histogram};
use std::time::Duration;

/// Counts for as long as it lives.
pub(crate) struct Counted(Gauge);

impl Counted {
    fn begin(gauge: Gauge) -> Self {
        gauge.increment(1);
        Self(gauge)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.decrement(1);
    }
}

pub(super) fn waiting(engine: &str) -> Counted {
    Counted::begin(gauge!("fencelock_waiting", "engine" => engine.to_owned()))
}

pub(super) fn held(engine: &str) -> Counted {
    Counted::begin(gauge!("fencelock_held", "engine" => engine.to_owned()))
}

fn acquires(engine: &str, outcome: &'static str) {
    counter!("fencelock_acquires_total", "engine" => engine.to_owned(), "outcome" => outcome).increment(1);
}

pub(super) fn granted(engine: &str, waited: Duration) {
    acquires(engine, "granted");
    histogram!("fencelock_wait_seconds", "engine" => engine.to_owned()).record(waited);
}

pub(super) fn tried_in_vain(engine: &str) {
    acquires(engine, "contended");
}

pub(super) fn refused(engine: &str, why: Option<ErrorKind>) {
    acquires(
        engine,
        match why {
            None => "cancelled",
            Some(ErrorKind::Timeout) => "timeout",
            Some(ErrorKind::Unavailable) => "unavailable",
            Some(_) => "failed",
        },
    );
}

pub(super) fn contended(engine: &str) {
    counter!("fencelock_contended_total", "engine" => engine.to_owned()).increment(1);
}

pub(super) fn renewed(engine: &str) {
    counter!("fencelock_renewals_total", "engine" => engine.to_owned()).increment(1);
}

pub(super) fn jeopardy(engine: &str) {
    counter!("fencelock_jeopardies_total", "engine" => engine.to_owned()).increment(1);
}

pub(super) fn ended(engine: &str, held: Duration, how: Ended) {
    match how {
        Ended::Released => {
            counter!("fencelock_releases_total", "engine" => engine.to_owned()).increment(1);
        }
        Ended::Lost(reason) => {
            counter!("fencelock_losses_total", "engine" => engine.to_owned(), "reason" => reason.as_str()).increment(1);
        }
    }
    histogram!("fencelock_hold_seconds", "engine" => engine.to_owned()).record(held);
}

pub(super) fn stale_release(engine: &str) {
    counter!("fencelock_stale_releases_total", "engine" => engine.to_owned()).increment(1);
}

pub(super) fn abandoned(engine: &str, undone: bool) {
    let outcome = if undone { "undone" } else { "expires" };
    counter!("fencelock_abandoned_total", "engine" => engine.to_owned(), "outcome" => outcome).increment(1);
}
