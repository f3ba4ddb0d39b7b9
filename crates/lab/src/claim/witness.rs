//! What shows that a deployment does not give the next level up.

use super::Case;
use crate::experiment::Asked;
use crate::fault::Fault;
use crate::promise::{of_level, promised_by};
use crate::report::Report;
use crate::verdict::{Came, Row};
use fencelock::{Level, Scope};

/// The shortest witness, in words, or why none can be had; an error if it was looked for in vain.
pub(super) fn above(case: &Case<'_>) -> Result<String, String> {
    let Some(next) = Level::ALL.into_iter().find(|level| *level > case.level) else {
        return Ok("there is no level above".to_owned());
    };
    if case.found.scope() != Scope::Network {
        return Ok(format!("{next} is of several servers, and a file has none that could be lost"));
    }
    let witnesses = case.reports.iter().flat_map(|report| {
        report.rows.iter().filter(move |row| is_against(next, case, report, row)).map(move |row| (report, row))
    });
    // What breaks a lock says more than that nobody was served.
    let best = witnesses.min_by_key(|(_, row)| {
        let (from, to) = row.shown.as_ref().map_or((0, u64::MAX), |shown| shown.span);
        (row.property == Asked::StaysUp, to.saturating_sub(from))
    });
    best.map_or_else(
        || Err(format!("no witness against {next}")),
        |(report, row)| {
            let said = row.witness.as_deref().unwrap_or("broken");
            Ok(format!("not {next}: {} breaks {}: {said}", report.experiment.fault_id(), row.property))
        },
    )
}

fn is_against(next: Level, case: &Case<'_>, report: &Report, row: &Row) -> bool {
    if row.verdict != Came::Broken || !report.experiment.mixed.is_empty() {
        return false;
    }
    let fault = report.experiment.fault;
    let leans = |on| case.found.assumptions().any(|assumption| assumption == on);
    let promised = |level| promised_by(level, &leans, fault).contains(&row.property);
    // What the deployment's own level promises speaks against that.
    if promised(case.level) || promised(next) {
        return !promised(case.level);
    }
    let broken = |level| of_level(level).iter().any(|property| row.property == Asked::Of(*property));
    match fault {
        // What takes a dead server's place is the service, restarted.
        Fault::FailedOver | Fault::LeaderKilled | Fault::LeaderStopped | Fault::LeaderIsolated => broken(next),
        // A node that is lost for good comes back by hand only.
        Fault::ReplacedAtOnce => next == Level::Replicated && broken(next),
        // The only server is away for longer than a lock lasts. Of several, this is not one that is lost.
        Fault::ServersStopped => {
            next == Level::Replicated && row.property == Asked::StaysUp && case.found.engine() != "redlock"
        }
        _ => false,
    }
}
