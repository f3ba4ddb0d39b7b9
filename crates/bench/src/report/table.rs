//! The rows as a table, in Markdown.

use crate::row::Row;

/// One line for each row.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "| case | engine | who | ops/s | p50 µs | p99 µs | of the floor | client µs | server µs | commands | |\n\
         |---|---|---|--:|--:|--:|--:|--:|--:|--:|---|\n",
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
    let pinned = if row.pinned { "" } else { " (unpinned)" };
    format!(
        "| {}{pinned} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
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
        more.replace(['|', '\n'], " "),
    )
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map(|value| format!("{value:.digits$}")).unwrap_or_default()
}
