//! The report, one page that needs nothing else.

use super::{markdown, plot};
use crate::cases::names;
use crate::row::Row;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:75rem;margin:2rem auto;padding:0 1rem;color:#222}\
table{border-collapse:collapse;display:block;overflow-x:auto}td,th{border:1px solid #ddd;padding:.2rem .5rem;text-align:left}\
th{background:#f5f5f5}td{font-variant-numeric:tabular-nums}svg{max-width:48rem;font:11px system-ui,sans-serif}\
strong{color:#b00020}";

/// The tables, and the plots of how a lock's cost grows with others; `how` says how it was measured.
pub(crate) fn page(rows: &[Row], how: &str) -> String {
    let plots: String = [names::HELD, names::STORED]
        .iter()
        .map(|case| {
            format!("<h2>Latency of acquire and release, by {case}</h2>\n<figure>{}</figure>\n", plot::svg(rows, case))
        })
        .collect();
    format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>fencelock: what a lock costs</title>\n<style>{STYLE}</style>\n<h1>What a lock costs</h1>\n<p>{}</p>\n{plots}{}</html>\n",
        escape(how),
        tables(&markdown(rows))
    )
}

/// Our own Markdown: headings, tables, and bold cells.
fn tables(markdown: &str) -> String {
    let (mut text, mut in_table) = (String::new(), false);
    for line in markdown.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            text.push_str(&format!("<h2>{}</h2>\n", escape(title)));
        } else if let Some(cells) = line.strip_prefix('|').filter(|cells| !cells.starts_with("---")) {
            let cell = if in_table { "td" } else { "th" };
            if !in_table {
                text.push_str("<table>\n");
            }
            in_table = true;
            let cells = cells.strip_suffix('|').unwrap_or(cells).split('|');
            let cells: String =
                cells.map(|content| format!("<{cell}>{}</{cell}>", bold(&escape(content.trim())))).collect();
            text.push_str(&format!("<tr>{cells}</tr>\n"));
        } else if in_table && !line.starts_with('|') {
            text.push_str("</table>\n");
            in_table = false;
        }
    }
    if in_table {
        text.push_str("</table>\n");
    }
    text
}

fn bold(cell: &str) -> String {
    match cell.strip_prefix("**").and_then(|rest| rest.split_once("**")) {
        Some((inner, after)) => format!("<strong>{inner}</strong>{after}"),
        None => cell.to_owned(),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_holds_what_the_tables_hold_and_nothing_that_it_did_not_write() {
        let row = Row {
            case: names::ONE_TASK.into(),
            engine: "redis".into(),
            who: "ours".into(),
            pinned: true,
            not_measured: Some("<script>".into()),
            ..Row::default()
        };
        let page = page(&[row], "7 rounds & more");
        assert!(page.contains("7 rounds &amp; more") && page.contains("&lt;script&gt;") && !page.contains("<script>"));
        assert_eq!(page.matches("<table>").count(), page.matches("</table>").count());
        assert_eq!(page.matches("<svg").count(), 2);
    }
}
