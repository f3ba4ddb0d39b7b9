//! Holders as bars, faults as bands, overlaps in red: one SVG for a piece of a history.

use fencelock_testkit::history::{Event, What};
use std::collections::BTreeMap;
use std::fmt::Write;

const WIDTH: f64 = 960.0;
const LANE: f64 = 22.0;
const LEFT: f64 = 84.0;
const TOP: f64 = 26.0;

struct Bar {
    worker: u32,
    from: u64,
    to: u64,
    label: String,
}

/// The SVG of all that overlaps `span`, in nanoseconds.
pub(crate) fn svg(events: &[Event], span: (u64, u64)) -> String {
    let (bars, bands) = (bars(events), bands(events));
    let inside = |from: u64, to: u64| from < span.1 && to > span.0;
    let bars: Vec<_> = bars.into_iter().filter(|bar| inside(bar.from, bar.to)).collect();
    let mut lanes: Vec<_> = bars.iter().map(|bar| bar.worker).collect();
    lanes.sort_unstable();
    lanes.dedup();
    let height = TOP + LANE * lanes.len().max(1) as f64 + 26.0;
    let long = (span.1 - span.0).max(1) as f64;
    let x = |at: u64| LEFT + (at.clamp(span.0, span.1) - span.0) as f64 / long * (WIDTH - LEFT - 12.0);
    let y = |worker: u32| TOP + LANE * lanes.iter().position(|lane| *lane == worker).unwrap_or_default() as f64;
    let mut svg = format!(r#"<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="time line of holders">"#);
    for (from, to, kind) in bands.into_iter().filter(|(from, to, _)| inside(*from, *to)) {
        let (left, right) = (x(from), x(to));
        let _ = write!(
            svg,
            r#"<rect class="fault" x="{left:.1}" y="14" width="{:.1}" height="{:.1}"/><text class="small" x="{:.1}" y="11">{}</text>"#,
            (right - left).max(1.5),
            height - 36.0,
            left + 2.0,
            escape(&kind)
        );
    }
    for lane in &lanes {
        let _ = write!(svg, r#"<text class="small" x="4" y="{:.1}">worker {lane}</text>"#, y(*lane) + 14.0);
    }
    for bar in &bars {
        let _ = write!(
            svg,
            r#"<rect class="hold" x="{:.1}" y="{:.1}" width="{:.1}" height="15"><title>{}</title></rect>"#,
            x(bar.from),
            y(bar.worker) + 3.0,
            (x(bar.to) - x(bar.from)).max(1.0),
            escape(&bar.label)
        );
    }
    for (at, bar) in bars.iter().enumerate() {
        for other in bars.iter().skip(at + 1).filter(|other| other.worker != bar.worker) {
            let (from, to) = (bar.from.max(other.from), bar.to.min(other.to));
            if from < to {
                for worker in [bar.worker, other.worker] {
                    let _ = write!(
                        svg,
                        r#"<rect class="both" x="{:.1}" y="{:.1}" width="{:.1}" height="15"/>"#,
                        x(from),
                        y(worker) + 3.0,
                        (x(to) - x(from)).max(1.5)
                    );
                }
            }
        }
    }
    for tick in 0..=6_u32 {
        let at = span.0 + (span.1 - span.0) / 6 * u64::from(tick);
        let _ = write!(
            svg,
            r#"<text class="small" x="{:.1}" y="{:.1}" text-anchor="middle">{:.0} ms</text>"#,
            x(at).clamp(LEFT + 14.0, WIDTH - 30.0),
            height - 6.0,
            (at - span.0) as f64 / 1e6
        );
    }
    svg.push_str("</svg>");
    svg
}

/// From when each lock was granted to the last true belief in it.
fn bars(events: &[Event]) -> Vec<Bar> {
    let mut open: BTreeMap<(u32, u32), Bar> = BTreeMap::new();
    for event in events {
        let id = (event.worker, event.hold);
        match &event.what {
            What::Granted { token } => {
                let label = format!("worker {} holds with token {token}", event.worker);
                open.insert(id, Bar { worker: event.worker, from: event.at, to: event.at, label });
            }
            What::Believed { asked, .. } => {
                open.entry(id).and_modify(|bar| bar.to = bar.to.max(*asked));
            }
            _ => {}
        }
    }
    open.into_values().collect()
}

fn bands(events: &[Event]) -> Vec<(u64, u64, String)> {
    let mut open = BTreeMap::new();
    let mut bands = Vec::new();
    for event in events {
        match &event.what {
            What::Fault { fault, kind } => {
                open.insert(*fault, (event.at, kind.to_string()));
            }
            What::Healed { fault } => {
                bands.extend(open.remove(fault).map(|(from, kind)| (from, event.at, kind)));
            }
            _ => {}
        }
    }
    bands.extend(open.into_values().map(|(from, kind)| (from, u64::MAX, kind)));
    bands
}

/// Fit for text in HTML and SVG.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
