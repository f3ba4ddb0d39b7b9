//! Rows as tables, in Markdown.

use super::{engines, find};
use crate::cases::names;
use crate::row::Row;

/// The ratios to the floor, a line for each engine; the last column is how much the floor differs from itself.
pub(super) fn ratios(rows: &[Row]) -> String {
    const CASES: [&str; 5] = [names::ONE_TASK, names::MANY_TASKS, names::HANDOVER, names::PROCESSES, names::TRY];
    let mut text = String::from("| engine |");
    for case in CASES {
        text.push_str(&format!(" {case} | unpinned |"));
    }
    text.push_str(" floor again, one task | 64 tasks |\n|---|");
    text.push_str(&"--:|".repeat(CASES.len() * 2 + 2));
    text.push('\n');
    for engine in engines(rows) {
        let ratio =
            |case, who, pinned| number(find(rows, case, engine, who, pinned).and_then(|row| row.ratio_to_floor), 2);
        text.push_str(&format!("| {engine} |"));
        for case in CASES {
            text.push_str(&format!(" {} | {} |", ratio(case, "ours", true), ratio(case, "ours", false)));
        }
        let noise = |case| ratio(case, "floor again", true);
        text.push_str(&format!(" {} | {} |\n", noise(names::ONE_TASK), noise(names::MANY_TASKS)));
    }
    text
}

/// Processor time for each pair, as a multiple of the floor's: it says the same on a machine that does other work.
pub(super) fn processor_time(rows: &[Row]) -> String {
    let mut text =
        String::from("| engine | client, one task | 64 tasks | server, one task | 64 tasks |\n|---|--:|--:|--:|--:|\n");
    for engine in engines(rows) {
        text.push_str(&format!("| {engine} |"));
        for of in [|row: &Row| row.client_cpu_us, |row: &Row| row.server_cpu_us] {
            for case in [names::ONE_TASK, names::MANY_TASKS] {
                let used = |who| find(rows, case, engine, who, true).and_then(of).filter(|used| *used > 0.0);
                let ratio = used("ours").zip(used("floor")).map(|(ours, floor)| ours / floor);
                text.push_str(&format!(" {} |", number(ratio, 2)));
            }
        }
        text.push('\n');
    }
    text
}

/// One line for each row.
pub(super) fn all(rows: &[Row]) -> String {
    let mut text = String::from(
        "| case | engine | who | ops/s | p50 µs | p99 µs | of the floor | client µs | server µs | commands | evenness | |\n\
         |---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|---|\n",
    );
    for row in rows {
        text.push_str(&line(row));
        text.push('\n');
    }
    text
}

pub(crate) fn line(row: &Row) -> String {
    let more = match (&row.not_measured, row.value, &row.unit) {
        (Some(why), ..) => format!("not measured: {why}"),
        (None, Some(value), Some(unit)) => format!("{value:.2} {unit}"),
        _ => String::new(),
    };
    let pinned = if row.pinned { "" } else { ", unpinned" };
    format!(
        "| {}{pinned} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
        row.case,
        row.engine,
        row.who,
        number(row.ops_per_s, 0),
        number(row.p50_us, 1),
        number(row.p99_us, 1),
        number(row.ratio_to_floor, 2),
        number(row.client_cpu_us, 1),
        number(row.server_cpu_us, 1),
        number(row.commands, 2),
        number(row.evenness, 2),
        more.replace(['|', '\n'], " "),
    )
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map(|value| format!("{value:.digits$}")).unwrap_or_default()
}
