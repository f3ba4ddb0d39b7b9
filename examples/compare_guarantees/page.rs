//! The table, and the page with the time lines, which needs nothing from anywhere.

use crate::{Report, Scene, TTL, seconds};
use std::fmt::Write;
use std::time::Duration;

const HEADS: [&str; 10] = [
    "engine",
    "level",
    "leans on",
    "paused: next after",
    "she says then",
    "stale write",
    "at a gate",
    "crashed: next after",
    "cut off, server killed",
    "acquire",
];

/// A row a report, without why the level is no higher.
fn rows(reports: &[Report]) -> Vec<Vec<String>> {
    let cells = |report: &Report| {
        report.cells.iter().enumerate().filter(|(at, _)| *at != 2).map(|(_, cell)| cell.clone()).collect::<Vec<_>>()
    };
    reports.iter().map(|report| [vec![report.name.to_owned()], cells(report)].concat()).collect()
}

pub(crate) fn table(reports: &[Report]) -> String {
    let rows = [vec![HEADS.map(str::to_owned).to_vec()], rows(reports)].concat();
    let widths: Vec<_> = (0..HEADS.len())
        .map(|at| rows.iter().filter_map(|row| row.get(at)).map(String::len).max().unwrap_or(0))
        .collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

const CSS: &str = include_str!("page.css");

pub(crate) fn page(reports: &[Report]) -> String {
    let mut html = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width,initial-scale=1\">\
         <title>Locks compared</title><style>{CSS}</style><h1>The same program on {} engines</h1><p>Alice and Bob are two \
         processes (in memory two threads) that sell shoes under one lock, ttl {TTL:?}. Alice is paused, crashes, and is cut off while the \
         server is killed. A hold is drawn for as long as its holder, asked every 2 ms, said that it held.</p><p class=key>\
         <i class=hold style=margin-left:0></i>holds<i class=fault></i>paused, cut off, or without a server<i class=both></i>two hold at once</p>\
         <div class=wide><table><tr>",
        reports.len()
    );
    for head in HEADS {
        let _ = write!(html, "<th>{head}");
    }
    for row in rows(reports) {
        html.push_str("<tr>");
        for cell in row {
            let class = if cell.contains("TWO") || cell.contains("accepted") {
                "bad"
            } else if cell.starts_with("refused") {
                "good"
            } else {
                ""
            };
            let _ = write!(html, "<td class=\"{class}\">{}", escape(&cell));
        }
    }
    html.push_str("</table></div>");
    for report in reports {
        let of = |at: usize| report.cells.get(at).map_or("", String::as_str);
        let _ = write!(html, "<h2>{}</h2><p>Level <b>{}</b>", escape(report.name), escape(of(0)));
        let _ =
            write!(html, ", leans on {}. Why not more: {}.</p>", escape(of(1)).replace('-', "nothing"), escape(of(2)));
        report.scenes.iter().for_each(|scene| draw(&mut html, scene));
    }
    html
}

fn draw(html: &mut String, scene: &Scene) {
    let ends = scene.holds.iter().map(|(_, _, to)| *to).chain(scene.faults.iter().map(|(_, _, to, _)| *to));
    let long = Duration::from_micros(ends.chain(scene.notes.iter().map(|(at, _)| *at)).max().unwrap_or(0) - scene.from);
    let share = |micros: u64| Duration::from_micros(micros).as_secs_f64() / long.as_secs_f64().max(1e-6) * 100.0;
    let bar = |class: &str, from: u64, to: u64, what: &str| {
        let (left, wide) = (share(from.saturating_sub(scene.from)), share(to.saturating_sub(from)));
        format!("<i class={class} style=\"left:{left:.2}%;width:{wide:.2}%\" title=\"{what}\"></i>")
    };
    let _ = write!(html, "<h3>{}</h3><div class=line>", scene.title);
    for (lane, name) in ["alice", "bob"].into_iter().enumerate() {
        let _ = write!(html, "<span>{name}</span><div class=lane>");
        for (_, from, to, what) in scene.faults.iter().filter(|(on, ..)| on.is_none_or(|on| on == lane)) {
            html.push_str(&bar("fault", *from, *to, what));
        }
        for (_, from, to) in scene.holds.iter().filter(|(on, ..)| *on == lane) {
            html.push_str(&bar("hold", *from, *to, "holds"));
        }
        if let Some((from, to)) = scene.both() {
            html.push_str(&bar("both", from, to, "two hold at once"));
        }
        html.push_str("</div>");
    }
    let _ = write!(html, "<div class=ends><span>0 s</span><span>{:.2} s</span></div></div><ol>", long.as_secs_f64());
    if let Some((from, to)) = scene.both() {
        let _ = write!(html, "<li class=bad><b class=bad>{}</b>two hold at once</li>", seconds(to - from));
    }
    for (at, what) in &scene.notes {
        let _ = write!(html, "<li><b>{}</b>{}</li>", seconds(at.saturating_sub(scene.from)), escape(what));
    }
    html.push_str("</ol>");
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
