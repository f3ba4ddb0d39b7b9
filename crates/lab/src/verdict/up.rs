//! Whether somebody is served while a server is away.

use super::{Judged, Witness};
use crate::experiment::Experiment;
use fencelock_testkit::history::{Event, What};

/// Of each fault at servers that outlasts a ttl and a half: whether in its last third anybody was
/// granted the lock, or was still told that it is held. Before that, what was granted
/// before the fault may not have run out.
pub(super) fn judge(experiment: &Experiment, events: &[Event]) -> Judged {
    let at_workers: Vec<_> = experiment.faults().into_iter().filter(|fault| fault.is_at_a_holder()).collect();
    let is_at_a_worker = |kind: &str| at_workers.iter().any(|fault| kind.starts_with(fault.id()));
    let least = u64::try_from((experiment.ttl * 3 / 2).as_nanos()).unwrap_or(u64::MAX);
    let (mut began, mut spans) = (None, Vec::new());
    for event in events {
        match event.what {
            What::Fault { ref kind, .. } => began = (!is_at_a_worker(kind)).then_some(event.at),
            What::Healed { .. } => spans.extend(began.take().map(|from| (from, event.at))),
            _ => {}
        }
    }
    spans.retain(|(from, to)| to.saturating_sub(*from) >= least);
    let asked = spans.len() as u64;
    spans.retain(|(from, to)| {
        let late = *from + (*to - *from) / 3 * 2;
        let served = |event: &Event| match event.what {
            What::Granted { .. } => (late..*to).contains(&event.at),
            What::Believed { asked, .. } => (late..*to).contains(&asked),
            _ => false,
        };
        !events.iter().any(served)
    });
    let shown = spans.iter().min_by_key(|(from, to)| to - from).map(|span| Witness {
        message: format!("nobody was served for {} ms", (span.1 - span.0) / 1_000_000),
        span: *span,
    });
    Judged { asked, broken: spans.len() as u64, shown }
}
