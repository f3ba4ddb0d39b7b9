//! What is made of the rows.

mod budgets;
mod html;
mod json;
mod peers;
mod plot;
mod table;

pub(crate) use html::page;
pub(crate) use json::{How, json};
pub(crate) use table::line;

use crate::row::Row;

/// Where the smallest share of a lock is less, as a part of the largest, most grants go to whoever has just released it.
const HANDS_OVER: f64 = 0.5;

/// All tables, in Markdown: the ratios, the budgets, the peers, and every row.
pub(crate) fn markdown(rows: &[Row]) -> String {
    let parts = [
        ("Ours, of the floor", table::ratios(rows)),
        ("Processor time, ours, as a multiple of the floor's", table::processor_time(rows)),
        ("Budgets", budgets::table(rows)),
        ("Ours, of each peer", peers::table(rows)),
        ("All rows", table::all(rows)),
    ];
    parts.iter().map(|(title, table)| format!("## {title}\n\n{table}\n")).collect()
}

/// The row of one contender in one case of one engine.
fn find<'r>(rows: &'r [Row], case: &str, engine: &str, who: &str, pinned: bool) -> Option<&'r Row> {
    let is = |row: &&Row| row.case == case && row.engine == engine && row.who == who && row.pinned == pinned;
    rows.iter().find(|row| is(row) && row.not_measured.is_none())
}

/// The engines of the rows, in their order.
fn engines(rows: &[Row]) -> Vec<&str> {
    let mut engines: Vec<&str> = Vec::new();
    for row in rows {
        if !engines.contains(&row.engine.as_str()) {
            engines.push(&row.engine);
        }
    }
    engines
}
