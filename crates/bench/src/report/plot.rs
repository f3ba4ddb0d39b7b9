//! A plot in SVG: the latency beside so many other locks, a line for each engine.

use crate::row::Row;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 120.0;
const EDGE: f64 = 30.0;
const COLOURS: [&str; 8] = ["#1b6ca8", "#c0392b", "#27864d", "#8e44ad", "#b9770e", "#16808a", "#555", "#d35490"];

struct Series<'r> {
    engine: &'r str,
    /// How many others, and the median latency in microseconds.
    points: Vec<(f64, f64)>,
}

fn series<'r>(rows: &'r [Row], case: &str) -> Vec<Series<'r>> {
    let mut all: Vec<Series<'r>> = Vec::new();
    for row in rows.iter().filter(|row| row.case == case && row.who == "ours" && row.pinned) {
        let Some(point) = row.value.zip(row.p50_us) else { continue };
        match all.iter_mut().find(|series| series.engine == row.engine) {
            Some(series) => series.points.push(point),
            None => all.push(Series { engine: &row.engine, points: vec![point] }),
        }
    }
    all
}

/// Both axes are logarithmic: flat is flat, and each engine is seen.
pub(super) fn svg(rows: &[Row], case: &str) -> String {
    let all = series(rows, case);
    let points = || all.iter().flat_map(|series| &series.points);
    let most = points().map(|(count, _)| *count).fold(10.0, f64::max);
    let low = 10_f64.powf(points().map(|(_, us)| us.log10()).fold(f64::MAX, f64::min).min(6.0).floor());
    let high = 10_f64.powf(points().map(|(_, us)| us.log10()).fold(low.log10() + 1.0, f64::max).ceil());
    let x = |count: f64| LEFT + (1.0 + count).log10() / (1.0 + most).log10() * (WIDTH - LEFT - RIGHT);
    let y = |us: f64| HEIGHT - EDGE - (us / low).log10() / (high / low).log10() * (HEIGHT - 2.0 * EDGE);
    let mut text = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"latency, {case}\">");
    let mut us = low;
    while us <= high * 1.01 {
        let (at, right) = (y(us), WIDTH - RIGHT);
        text.push_str(&format!(
            "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{us} µs</text>",
            LEFT - 6.0,
            at + 4.0
        ));
        us *= 10.0;
    }
    let mut counts: Vec<f64> = points().map(|(count, _)| *count).collect();
    counts.sort_by(f64::total_cmp);
    counts.dedup();
    for count in counts {
        text.push_str(&format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{count}</text>",
            x(count),
            HEIGHT - 8.0
        ));
    }
    let mut label = f64::MIN;
    let mut ordered: Vec<_> = all.iter().zip(COLOURS.iter().cycle()).collect();
    let last = |series: &Series<'_>| series.points.last().map_or(0.0, |(_, us)| y(*us));
    ordered.sort_by(|(one, _), (other, _)| last(one).total_cmp(&last(other)));
    for (series, colour) in ordered {
        let line: Vec<_> = series.points.iter().map(|(count, us)| format!("{:.1},{:.1}", x(*count), y(*us))).collect();
        // Names do not lie on one another.
        label = (last(series) + 4.0).max(label + 13.0);
        text.push_str(&format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\
             <text x=\"{:.1}\" y=\"{label:.1}\" fill=\"{colour}\">{}</text>",
            line.join(" "),
            WIDTH - RIGHT + 8.0,
            series.engine
        ));
    }
    text + "</svg>"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_engine_is_a_line() {
        let row = |engine: &str, count, us| Row {
            case: "others".into(),
            engine: engine.into(),
            who: "ours".into(),
            value: Some(count),
            p50_us: Some(us),
            pinned: true,
            ..Row::default()
        };
        let rows = [row("redis", 1.0, 40.0), row("redis", 1e6, 41.0), row("etcd", 1.0, 400.0), row("etcd", 1e4, 390.0)];
        let svg = svg(&rows, "others");
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert!(svg.contains(">redis</text>") && svg.contains(">1000000</text>") && svg.contains(">10 µs</text>"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        assert!(!super::svg(&[], "others").contains("NaN"), "nothing was measured");
    }
}
