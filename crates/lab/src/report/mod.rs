//! What was found, for a terminal, for programs, and as a page.

mod page;
mod timeline;

use crate::claim::Claim;
use crate::experiment::Experiment;
use crate::guarded::Guarded;
use crate::verdict::Row;
use fencelock::Guarantees;
use fencelock_testkit::history::Event;
use serde::Serialize;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use page::page;

/// One experiment with all that came of it.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) experiment: Experiment,
    /// What the deployment said of itself.
    pub(crate) found: Arc<Guarantees>,
    pub(crate) rows: Vec<Row>,
    pub(crate) events: Vec<Event>,
}

/// All that came of a run.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) reports: Vec<Report>,
    pub(crate) claims: Vec<Claim>,
    pub(crate) guarded: Guarded,
    pub(crate) took: Duration,
    pub(crate) seed: u64,
}

/// Prints whether each deployment's level is confirmed; of a part of the matrix only what it shows.
pub(crate) fn tell_claims(found: &Found, whole: bool) {
    for claim in &found.claims {
        let Claim { engine, server, level, experiments, hits, above, .. } = claim;
        let said = match (claim.confirmed, whole) {
            (true, _) => "confirmed",
            (false, true) => "NOT CONFIRMED",
            (false, false) => "not all of it tried",
        };
        println!("{engine} · {server} · {level}: {said}; {experiments} experiments, {hits} hits; {above}");
        if whole {
            claim.lacks.iter().for_each(|lack| println!("!   {lack}"));
            claim.borrowed.iter().for_each(|borrowed| println!("    {borrowed}"));
        }
    }
    println!("{}", found.guarded.told());
}

/// Prints the verdicts of one experiment.
pub(crate) fn tell(rows: &[Row]) {
    let Some(first) = rows.first() else { return };
    println!(
        "{} · {} · {} ({}) · {} {} · seed {} · hit {} times, {} locks granted",
        first.engine,
        first.deployment,
        first.level,
        first.server,
        first.fault,
        first.variant,
        first.seed,
        first.hits,
        first.operations
    );
    for row in rows.iter().filter(|row| row.is_of_interest()) {
        let mark = if row.is_as_expected() { ' ' } else { '!' };
        let witness = row.witness.as_deref().unwrap_or_default();
        println!(
            "{mark} {:<29} expected {:<7} {:<12} asked {:>6} broken {:>4}  {witness}",
            row.property, row.expected, row.verdict, row.asked, row.broken
        );
    }
}

/// Writes the verdicts of all, a line of JSON each.
///
/// After the verdicts come the claims, and what was seen behind gates, with a `kind`.
pub(crate) fn write_json(file: &Path, found: &Found) -> std::io::Result<()> {
    #[derive(Serialize)]
    #[serde(tag = "kind", rename_all = "snake_case")]
    enum Line<'a> {
        Claim(&'a Claim),
        Guarded(&'a Guarded),
    }

    let mut out = std::io::BufWriter::new(std::fs::File::create(file)?);
    for row in found.rows() {
        serde_json::to_writer(&mut out, row)?;
        out.write_all(b"\n")?;
    }
    let lines = found.claims.iter().map(Line::Claim).chain([Line::Guarded(&found.guarded)]);
    for line in lines {
        serde_json::to_writer(&mut out, &line)?;
        out.write_all(b"\n")?;
    }
    out.flush()
}
