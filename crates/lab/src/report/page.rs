//! The report as one page that needs nothing from anywhere.

mod claims;
mod matrix;

use super::timeline::{escape, svg};
use super::{Found, Report};
use fencelock_testkit::history::{Event, What};
use std::fmt::Write;

/// The claims, the matrix, and every experiment with its time lines.
pub(crate) fn page(found: &Found) -> String {
    let mut html = String::from("<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">");
    html.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
    html.push_str("<meta name=\"color-scheme\" content=\"light dark\">");
    let _ = write!(html, "<title>fencelock lab</title><style>{}</style></head><body>", include_str!("page.css"));
    html.push_str("<h1>What was promised, and what was seen</h1>");
    let _ = write!(
        html,
        "<p>{} experiments on real servers in {:.0} minutes, seed {}. <span class=\"holds\">holds</span>: the fault \
         hit, and nothing broke. <span class=\"broken\">broken</span>: there is a witness. <span \
         class=\"inconclusive\">inconclusive</span>: the fault did not hit often enough, or nothing was asked. A frame \
         marks what was not expected.</p><p>{}.</p>",
        found.reports.len(),
        found.took.as_secs_f64() / 60.0,
        found.seed,
        escape(&found.guarded.told())
    );
    claims::write(&mut html, found);
    matrix::write(&mut html, found);
    for (at, report) in found.reports.iter().enumerate() {
        experiment(&mut html, at, report);
    }
    html.push_str("</body></html>");
    html
}

fn experiment(html: &mut String, at: usize, report: &Report) {
    let experiment = &report.experiment;
    let Some(first) = report.rows.first() else { return };
    let mixed = experiment.mixed.iter().map(|fault| fault.id()).collect::<Vec<_>>().join(", ");
    let _ = write!(
        html,
        "<section><h2 id=\"e{at}\">{}</h2><dl><dt>server</dt><dd>{}, level {}</dd><dt>seed</dt><dd>{}</dd><dt>settings</dt>\
         <dd>ttl {:?}; {} workers; {} rounds, each fault {}, then at least {:?} of rest; served within {:?}{}</dd>\
         <dt>seen</dt><dd>the fault hit {} times; {} locks were granted in {:.0} s</dd><dt>again</dt><dd><code>cargo run \
         -p fencelock-lab -- run --engine {} --deployment '{}' --fault {} --seed {}</code></dd></dl>",
        escape(&experiment.id()),
        escape(&first.server),
        escape(&first.level),
        first.seed,
        experiment.ttl,
        experiment.workers,
        experiment.rounds,
        if mixed.is_empty() { format!("for {:?}", experiment.lasts) } else { "for as long as by itself".to_owned() },
        experiment.rest,
        experiment.served_within,
        if mixed.is_empty() { mixed } else { format!("; of {mixed}") },
        first.hits,
        first.operations,
        first.ran,
        escape(experiment.engine),
        escape(experiment.deployment),
        experiment.fault_id(),
        first.seed
    );
    html.push_str("<div class=\"wide\"><table><tr><th>promise</th><th>expected</th><th>verdict</th>");
    html.push_str("<th class=\"n\">asked</th><th class=\"n\">broken</th><th>shortest witness</th></tr>");
    for row in report.rows.iter().filter(|row| row.is_of_interest()) {
        let odd = if row.is_as_expected() { "" } else { " odd" };
        let _ = write!(
            html,
            "<tr><td>{}</td><td>{}</td><td><span class=\"{}{odd}\">{}</span></td><td class=\"n\">{}</td><td \
             class=\"n\">{}</td><td>{}</td></tr>",
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
    html.push_str("</section>");
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
