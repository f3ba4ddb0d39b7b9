//! One page that needs nothing else: what was found, and who held what when.

use super::judge::{Finding, unclear};
use super::read::{Hold, Logs, Time, shown};
use crate::output::{clean, human};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write;
use std::time::Duration;

/// The most names that are drawn; those with findings come first.
const NAMES: usize = 200;
/// The most holds that are drawn of one name; those in findings always are.
const HOLDS: usize = 5_000;
/// The most holds that are drawn of all names together, so that a browser can show the page.
const ALL_HOLDS: usize = 50_000;
const WIDTH: f64 = 1_000.0;
const LANE: usize = 16;

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c2024;--dim:#60646c;--paper:#fff;--line:#d9d9e0;--bad:#ce2c31;--ok:#5a7fd6}\
@media(prefers-color-scheme:dark){:root{--ink:#edeef0;--dim:#b0b4ba;--paper:#111113;--line:#363a3f;--bad:#ff6369;--ok:#7ea1f5}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1100px;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.4rem}h2{font-size:1rem;margin:1.5rem 0 .3rem;overflow-wrap:anywhere}\
.dim{color:var(--dim)}.bad{color:var(--bad)}\
ul{padding-left:1.2rem}li{margin:.4rem 0;overflow-wrap:anywhere}\
svg{width:100%;height:auto;border:1px solid var(--line);border-radius:4px}\
rect.h{fill:var(--ok)}rect.b{fill:var(--bad)}text{fill:var(--dim);font:10px system-ui,sans-serif}\
line{stroke:var(--line)}";

/// The page.
pub(super) fn page(logs: &Logs, found: &[Finding<'_>]) -> String {
    let mut page = String::from("<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n");
    page.push_str(
        "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>fencelock audit</title>\n",
    );
    let _ = writeln!(page, "<style>{STYLE}</style>\n<h1>fencelock audit</h1>");
    let by_name = logs.by_name();
    let (from, until) = bounds(&logs.holds);
    let _ = writeln!(
        page,
        "<p class=\"dim\">{} holds of {} names in {} files, {} to {}</p>",
        logs.holds.len(),
        by_name.len(),
        logs.files.len(),
        shown(from),
        shown(until)
    );
    findings(&mut page, found);
    remarks(&mut page, logs);
    let bad: BTreeSet<&str> = found.iter().map(Finding::name).collect();
    let claims: HashSet<&str> = found.iter().flat_map(claims).collect();
    let mut names: Vec<_> = by_name.iter().collect();
    names.sort_by_key(|((_, name), _)| !bad.contains(name));
    let mut room = ALL_HOLDS;
    for ((engine, name), holds) in names.iter().take(NAMES) {
        let class = if bad.contains(name) { " class=\"bad\"" } else { "" };
        let _ = writeln!(page, "<h2{class}>{} <span class=\"dim\">{}</span></h2>", escaped(name), escaped(engine));
        time_line(&mut page, logs, holds, &claims, &mut room);
    }
    if names.len() > NAMES {
        let _ = writeln!(page, "<p class=\"dim\">{} more names are not drawn.</p>", names.len() - NAMES);
    }
    page.push_str("</html>\n");
    page
}

fn claims<'f>(finding: &Finding<'f>) -> Vec<&'f str> {
    match finding {
        Finding::Overlap { first, second, .. } => vec![&first.claim, &second.claim],
        Finding::Stale(stale) => vec![&stale.claim],
        Finding::TokenOrder { earlier, later } => vec![&earlier.claim, &later.claim],
    }
}

/// What the logs cannot tell, because some end early.
fn remarks(page: &mut String, logs: &Logs) {
    for (first, second) in unclear(logs) {
        let _ = writeln!(
            page,
            "<p><b>unclear</b>: <b>{}</b> was granted to {} (token {}) at {}; the log of {} (token {}) ends before, and its \
             lease could be believed until {}.</p>",
            escaped(&first.name),
            escaped(&second.holder),
            second.token,
            shown(second.granted),
            escaped(&first.holder),
            first.token,
            shown(first.until)
        );
    }
}

fn findings(page: &mut String, found: &[Finding<'_>]) {
    if found.is_empty() {
        page.push_str("<p>Nothing is wrong.</p>\n");
        return;
    }
    let _ = writeln!(page, "<p class=\"bad\">{} found:</p>\n<ul>", found.len());
    for finding in found {
        let name = escaped(finding.name());
        let _ = match finding {
            Finding::Overlap { first, second, from, until } => writeln!(
                page,
                "<li><b>overlap</b> of <b>{name}</b> at {} for {}: token {} of {} and token {} of {}",
                shown(*from),
                human(Duration::from_micros(u64::try_from(until.saturating_sub(*from)).unwrap_or_default())),
                first.token,
                escaped(&first.holder),
                second.token,
                escaped(&second.holder)
            ),
            Finding::Stale(stale) => writeln!(
                page,
                "<li><b>stale release</b> of <b>{name}</b> at {}: token {} of {}",
                shown(stale.at),
                stale.token,
                escaped(&stale.holder)
            ),
            Finding::TokenOrder { earlier, later } => writeln!(
                page,
                "<li><b>token order</b> of <b>{name}</b> at {}: token {} of {} after {} of {}",
                shown(later.granted),
                later.token,
                escaped(&later.holder),
                earlier.token,
                escaped(&earlier.holder)
            ),
        };
    }
    page.push_str("</ul>\n");
}

fn bounds<'h>(holds: impl IntoIterator<Item = &'h Hold>) -> (Time, Time) {
    let ends = |ends: Option<(Time, Time)>, hold: &Hold| {
        Some(ends.map_or((hold.granted, hold.end), |(from, until)| (from.min(hold.granted), until.max(hold.end))))
    };
    holds.into_iter().fold(None, ends).unwrap_or_default()
}

/// One lane for each file that told of a hold of the name.
fn time_line(page: &mut String, logs: &Logs, holds: &[&Hold], bad: &HashSet<&str>, room: &mut usize) {
    let (from, until) = bounds(holds.iter().copied());
    let files: BTreeSet<_> = holds.iter().map(|hold| hold.file).collect();
    let lanes: BTreeMap<_, _> = files.iter().enumerate().map(|(lane, file)| (*file, lane)).collect();
    let height = lanes.len() * LANE + 14;
    #[allow(clippy::cast_precision_loss, reason = "a picture is not that exact")]
    let place = |time: Time| (time - from) as f64 / (until - from).max(1) as f64 * WIDTH;
    let label = format!("{} holds, {} to {}", holds.len(), shown(from), shown(until));
    let _ = writeln!(page, "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{label}\">");
    let (found, plain): (Vec<&Hold>, Vec<&Hold>) = holds.iter().partition(|hold| bad.contains(&*hold.claim));
    let drawn = plain.len().min(HOLDS).min(*room);
    *room -= drawn;
    for hold in plain.iter().take(drawn).chain(&found) {
        let class = if bad.contains(&*hold.claim) { "b" } else { "h" };
        let (x, y) = (place(hold.granted), lanes.get(&hold.file).copied().unwrap_or_default() * LANE + 2);
        let width = (place(hold.end) - x).max(0.8);
        let title = format!("token {}, {}, {} to {}", hold.token, hold.holder, shown(hold.granted), shown(hold.end));
        let _ = writeln!(
            page,
            "<rect class=\"{class}\" x=\"{x:.2}\" y=\"{y}\" width=\"{width:.2}\" height=\"{}\"><title>{}</title></rect>",
            LANE - 4,
            escaped(&title)
        );
    }
    for (file, lane) in &lanes {
        let y = lane * LANE + LANE - 4;
        let _ = writeln!(page, "<text x=\"2\" y=\"{y}\">{}</text>", escaped(logs.file(*file)));
    }
    let (y, middle) = (lanes.len() * LANE, WIDTH / 2.0);
    let _ = writeln!(page, "<line x1=\"0\" x2=\"{WIDTH}\" y1=\"{y}\" y2=\"{y}\"/>");
    let _ = writeln!(page, "<text x=\"2\" y=\"{}\">{}</text>", y + 11, shown(from));
    let _ = writeln!(page, "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{} holds</text>", y + 11, holds.len());
    let _ = writeln!(page, "<text x=\"998\" y=\"{}\" text-anchor=\"end\">{}</text>\n</svg>", y + 11, shown(until));
    if drawn < plain.len() {
        let _ = writeln!(page, "<p class=\"dim\">{} more holds are not drawn.</p>", plain.len() - drawn);
    }
}

/// Text that others chose, as text and nothing else.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in clean(text).chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}
