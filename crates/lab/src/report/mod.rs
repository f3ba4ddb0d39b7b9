//! What was found, for a terminal, for programs, and as a page.

mod page;
mod timeline;

use crate::experiment::Experiment;
use crate::verdict::Row;
use fencelock::Guarantees;
use fencelock_testkit::history::Event;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

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

/// Prints the verdicts of one experiment.
pub(crate) fn tell(rows: &[Row]) {
    let Some(first) = rows.first() else { return };
    println!(
        "{} · {} · {} ({}) · {} {} · hit {} times, {} locks granted",
        first.engine,
        first.deployment,
        first.level,
        first.server,
        first.fault,
        first.variant,
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
pub(crate) fn write_json(file: &Path, reports: &[Report]) -> std::io::Result<()> {
    let mut out = std::io::BufWriter::new(std::fs::File::create(file)?);
    for row in reports.iter().flat_map(|report| &report.rows) {
        serde_json::to_writer(&mut out, row)?;
        out.write_all(b"\n")?;
    }
    out.flush()
}
