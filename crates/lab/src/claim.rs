//! Whether what a deployment says of itself is confirmed: each property of its level
//! under each of the level's faults, and a witness against the next level up.

mod needs;
#[cfg(test)]
mod tests;
mod witness;

use crate::experiment::Asked;
use crate::promise::of_level;
use crate::report::Report;
use crate::verdict::{Came, Expected};
use fencelock::{Guarantees, Level};
use needs::{lacking, needs};
use serde::Serialize;
use std::sync::Arc;

/// What one deployment says of itself, and what came of it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Claim {
    pub(crate) engine: String,
    /// What it said it is, and what was attested.
    pub(crate) server: String,
    pub(crate) level: String,
    pub(crate) confirmed: bool,
    /// What is missing or wrong, if it is not confirmed.
    pub(crate) lacks: Vec<String>,
    /// What was tried on another deployment of the engine, for what concerns the client alone.
    pub(crate) borrowed: Vec<String>,
    /// What shows that the next level up is not given, or why nothing can.
    pub(crate) above: String,
    pub(crate) experiments: usize,
    /// How often a fault met a hold.
    pub(crate) hits: u64,
}

/// One deployment's words, with the reports on it.
struct Case<'a> {
    found: Arc<Guarantees>,
    level: Level,
    server: &'a str,
    reports: Vec<&'a Report>,
}

/// All claims, in the order in which they were tried first.
pub(crate) fn claims(reports: &[Report]) -> Vec<Claim> {
    let mut cases: Vec<Case<'_>> = Vec::new();
    for report in reports {
        let (Some(row), Some(level)) = (report.rows.first(), report.found.level()) else { continue };
        let same = |case: &&mut Case<'_>| {
            case.found.engine() == report.found.engine() && case.server == row.server && case.level == level
        };
        if let Some(case) = cases.iter_mut().find(same) {
            case.reports.push(report);
        } else {
            let found = Arc::clone(&report.found);
            cases.push(Case { found, level, server: &row.server, reports: vec![report] });
        }
    }
    cases.iter().map(|case| claim(case, &cases)).collect()
}

fn claim(case: &Case<'_>, all: &[Case<'_>]) -> Claim {
    let mut lacks = against(case);
    let mut borrowed = Vec::new();
    for need in needs(case.level, &case.found) {
        match lacking(need, case, all) {
            Ok(None) => {}
            Ok(Some(elsewhere)) => borrowed.push(elsewhere),
            Err(lack) => lacks.push(lack),
        }
    }
    lacks.extend(unseen(case));
    let above = witness::above(case).unwrap_or_else(|lack| {
        lacks.push(lack.clone());
        lack
    });
    Claim {
        engine: case.found.engine().to_owned(),
        server: case.server.to_owned(),
        level: case.level.to_string(),
        confirmed: lacks.is_empty(),
        lacks,
        borrowed,
        above,
        experiments: case.reports.len(),
        hits: case.reports.iter().filter_map(|report| report.rows.first()).map(|row| u64::from(row.hits)).sum(),
    }
}

/// What was promised and did not come out so.
fn against(case: &Case<'_>) -> Vec<String> {
    let mut lacks = Vec::new();
    for report in &case.reports {
        for row in report.rows.iter().filter(|row| row.expected == Expected::Holds && row.verdict != Came::Holds) {
            lacks.push(format!("{} is {} in {}", row.property, row.verdict, report.experiment.id()));
        }
    }
    lacks
}

/// Properties of the level that hold nowhere with a count.
fn unseen(case: &Case<'_>) -> Vec<String> {
    let holds = |asked: Asked| {
        let mut rows = case.reports.iter().flat_map(|report| &report.rows);
        rows.any(|row| row.property == asked && row.verdict == Came::Holds)
    };
    let unseen = of_level(case.level).iter().copied().map(Asked::Of).filter(|asked| !holds(*asked));
    unseen.map(|asked| format!("{asked} was not put to the test")).collect()
}
