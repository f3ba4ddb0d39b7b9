//! The guarantee matrix: a row for each deployment under a fault, a column for each promise.

use crate::experiment::Asked;
use crate::report::timeline::escape;
use crate::report::{Found, Report};
use crate::verdict::{Came, Expected, Row};
use fencelock_testkit::history::Property;
use std::fmt::Write;

/// The columns, and what stands above them.
fn columns() -> Vec<(Asked, &'static str)> {
    let promises = Property::ALL.map(|property| (Asked::Of(property), property.id()));
    let others = [(Asked::OpenUpdates, "no gate"), (Asked::WriteOnlyUpdates, "at the write"), (Asked::StaysUp, "up")];
    promises.into_iter().chain(others).collect()
}

pub(super) fn write(html: &mut String, found: &Found) {
    html.push_str(
        "<h2 id=\"matrix\">Matrix</h2><p>✓ holds, ✗ broken, ? inconclusive; what was promised or expected is ",
    );
    html.push_str(
        "bold, the rest is only told. Every cell leads to its experiment, with seed, versions and settings. ",
    );
    html.push_str("<em>No gate</em> and <em>at the write</em> are updates that only the lock, or a token seen at the ");
    html.push_str("write alone, guards.</p><div class=\"wide\"><table class=\"matrix\"><tr><th>fault</th>");
    for (_, name) in columns() {
        let _ = write!(html, "<th class=\"c\">{name}</th>");
    }
    html.push_str("<th class=\"n\">hits</th><th class=\"n\">granted</th></tr>");
    let mut above = None;
    for (at, report) in found.reports.iter().enumerate() {
        let deployment = (report.experiment.engine, report.experiment.deployment);
        if above != Some(deployment) {
            above = Some(deployment);
            heading(html, found, report);
        }
        line(html, at, report);
    }
    html.push_str("</table></div>");
}

/// The deployment, its level, and whether that is confirmed.
fn heading(html: &mut String, found: &Found, report: &Report) {
    let Some(row) = report.rows.first() else { return };
    let confirmed = found.claim_of(row).is_some_and(|claim| claim.confirmed);
    let _ = write!(
        html,
        "<tr class=\"deployment\"><th colspan=\"{}\">{} · {} <span class=\"dim\">· {}{}</span></th></tr>",
        columns().len() + 3,
        escape(row.engine),
        escape(row.deployment),
        escape(&row.level),
        if confirmed { ", confirmed" } else { "" }
    );
}

fn line(html: &mut String, at: usize, report: &Report) {
    let Some(first) = report.rows.first() else { return };
    let variant = if first.variant.is_empty() { String::new() } else { format!(", {}", first.variant) };
    let _ = write!(html, "<tr><td><a href=\"#e{at}\">{}{}</a></td>", escape(&first.fault), escape(&variant));
    for (asked, _) in columns() {
        match report.rows.iter().find(|row| row.property == asked && row.is_of_interest()) {
            Some(row) => cell(html, at, row),
            None => html.push_str("<td></td>"),
        }
    }
    let _ = write!(html, "<td class=\"n\">{}</td><td class=\"n\">{}</td></tr>", first.hits, first.operations);
}

fn cell(html: &mut String, at: usize, row: &Row) {
    let sign = match row.verdict {
        Came::Holds => "✓",
        Came::Broken => "✗",
        Came::Inconclusive => "?",
    };
    let weight = if row.expected == Expected::Nothing { "" } else { " bold" };
    let odd = if row.is_as_expected() { "" } else { " odd" };
    let _ = write!(
        html,
        "<td class=\"c\"><a class=\"{}{weight}{odd}\" href=\"#e{at}\" title=\"{} {}: asked {} times, broken {}; expected {}\">{sign}</a></td>",
        row.verdict, row.property, row.verdict, row.asked, row.broken, row.expected
    );
}
