//! The report as one page that needs nothing from anywhere.

use super::{Found, Report};
use crate::experiment::Asked;
use super::timeline::{escape, svg};
use crate::verdict::{Came, Expected, Row};
use fencelock_testkit::history::{Event, What};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The matrix, and every experiment with its time lines.
pub(crate) fn page(found: &Found) -> String {
    let reports = found.reports.as_slice();
    let mut html = String::from("<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">");
    html.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
    let _ = write!(html, "<title>fencelock lab</title><style>{}</style></head><body>", include_str!("page.css"));
    html.push_str("<h1>What was promised, and what was seen</h1><p>Each cell is an experiment: an engine in a ");
    html.push_str("deployment under a fault. <span class=\"holds\">holds</span>: the fault hit, and nothing broke. ");
    html.push_str("<span class=\"broken\">broken</span>: there is a witness. ");
    html.push_str("<span class=\"inconclusive\">inconclusive</span>: the fault did not hit often enough. ");
    html.push_str("A frame marks what was not expected.</p>");
    matrix(&mut html, reports);
    for (at, report) in reports.iter().enumerate() {
        experiment(&mut html, at, report);
    }
    html.push_str("</body></html>");
    html
}

/// A row for each deployment, with its faults and the worst verdict of each.
fn matrix(html: &mut String, reports: &[Report]) {
    let mut deployments: BTreeMap<_, Vec<(usize, &Report)>> = BTreeMap::new();
    for (at, report) in reports.iter().enumerate() {
        let level = report.rows.first().map_or("", |row| row.level.as_str());
        let key = (report.experiment.engine, report.experiment.deployment, level);
        deployments.entry(key).or_default().push((at, report));
    }
    html.push_str(
        "<div class=\"wide\"><table><tr><th>engine</th><th>deployment</th><th>level</th><th>experiments</th></tr>",
    );
    for ((engine, deployment, level), all) in deployments {
        let _ = write!(
            html,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>",
            escape(engine),
            escape(deployment),
            escape(level)
        );
        for (at, report) in all {
            let broken: Vec<_> =
                promised(report).filter(|row| row.verdict == Came::Broken).map(|row| row.property.id()).collect();
            let unsure = promised(report).any(|row| row.verdict == Came::Inconclusive);
            let class = if !broken.is_empty() {
                "broken"
            } else if unsure {
                "inconclusive"
            } else {
                "holds"
            };
            let odd = if report.rows.iter().all(Row::is_as_expected) { "" } else { " odd" };
            let what = if broken.is_empty() { class.to_owned() } else { format!("{} broken", broken.join(", ")) };
            let (fault, variant) = (report.experiment.fault_id(), report.experiment.variant);
            let variant = if variant.is_empty() { String::new() } else { format!(", {variant}") };
            let _ = write!(html, "<a class=\"{class}{odd}\" href=\"#e{at}\">{fault}{variant}: {what}</a><br>");
        }
        html.push_str("</td></tr>");
    }
    html.push_str("</table></div>");
}

/// The rows about which something was expected, without the controls that have no gate.
fn promised(report: &Report) -> impl Iterator<Item = &Row> {
    report.rows.iter().filter(|row| row.expected != Expected::Nothing && matches!(row.property, Asked::Of(_)))
}

fn experiment(html: &mut String, at: usize, report: &Report) {
    let experiment = &report.experiment;
    let (hits, operations, seed) = report.rows.first().map_or((0, 0, 0), |row| (row.hits, row.operations, row.seed));
    let _ = write!(
        html,
        "<h2 id=\"e{at}\">{}</h2><p>{}. Seed {seed}, ttl {:?}, {} workers, {} rounds; the fault hit {hits} times, \
         {operations} locks were granted. Again: <code>cargo run -p fencelock-lab -- run --engine {} --deployment \
         '{}' --fault {} --seed {seed}</code></p><div class=\"wide\"><table><tr><th>promise</th><th>expected</th>\
         <th>verdict</th><th>asked</th><th>broken</th><th>witness</th></tr>",
        escape(&experiment.id()),
        escape(report.rows.first().map_or("", |row| &row.server)),
        experiment.ttl,
        experiment.workers,
        experiment.rounds,
        escape(experiment.engine),
        escape(experiment.deployment),
        experiment.fault_id()
    );
    for row in report.rows.iter().filter(|row| row.is_of_interest()) {
        let odd = if row.is_as_expected() { "" } else { " odd" };
        let _ = write!(
            html,
            "<tr><td>{}</td><td>{}</td><td class=\"{}{odd}\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td></tr>",
            row.property,
            row.expected,
            row.verdict,
            row.verdict,
            row.asked,
            row.broken,
            escape(row.witness.as_deref().unwrap_or_default())
        );
    }
    html.push_str("</table></div>");
    for (caption, span) in spans(report) {
        let _ = write!(html, "<p>{}</p><div class=\"wide\">{}</div>", escape(&caption), svg(&report.events, span));
    }
}

/// What is worth looking at: the witnesses, or else what a fault did.
fn spans(report: &Report) -> Vec<(String, (u64, u64))> {
    let around = |(from, to): (u64, u64)| {
        let beside = u64::try_from(report.experiment.ttl.as_nanos()).unwrap_or_default() * 5 / 2;
        (from.saturating_sub(beside), to.saturating_add(beside))
    };
    let found = report.rows.iter().filter_map(|row| {
        let shown = row.shown.as_ref().filter(|shown| shown.span.1 > 0)?;
        Some((format!("{}: {}", row.property, shown.message), around(shown.span)))
    });
    let mut spans: Vec<_> = found.collect();
    if spans.is_empty() {
        spans.extend(first_fault(&report.events).map(|span| ("The first fault".to_owned(), around(span))));
    }
    spans
}

fn first_fault(events: &[Event]) -> Option<(u64, u64)> {
    let at = |is: fn(&What) -> bool| events.iter().find(|event| is(&event.what)).map(|event| event.at);
    Some((at(|what| matches!(what, What::Fault { .. }))?, at(|what| matches!(what, What::Healed { .. }))?))
}
