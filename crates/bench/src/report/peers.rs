//! Ours beside each peer, and what a peer does without.

use super::{HANDS_OVER, engines, find};
use crate::cases::names;
use crate::contender::lacks;
use crate::row::Row;

pub(super) fn table(rows: &[Row]) -> String {
    const CASES: [&str; 6] =
        [names::ONE_TASK, names::MANY_TASKS, names::HANDOVER, names::PROCESSES, names::TRY, names::COLD];
    let mut text = String::from(
        "| engine | peer | case | ours, of its rate | | what it does without |\n|---|---|---|--:|---|---|\n",
    );
    for engine in engines(rows) {
        for case in CASES {
            let peers = rows.iter().filter(|row| row.engine == engine && row.case == case && row.pinned);
            for peer in peers.filter(|row| !row.who.starts_with("ours") && !row.who.starts_with("floor")) {
                let lacks = lacks(engine, &peer.who).unwrap_or_default();
                let ours = find(rows, case, engine, "ours", true);
                let (ratio, said) = match (&peer.not_measured, ours.and_then(|ours| ratio(ours, peer))) {
                    (None, Some(ratio)) => (format!("{ratio:.2}"), said(ratio, peer)),
                    (Some(why), _) => (String::new(), format!("not measured: {}", why.replace(['|', '\n'], " "))),
                    _ => (String::new(), String::new()),
                };
                text.push_str(&format!("| {engine} | {} | {case} | {ratio} | {said} | {lacks} |\n", peer.who));
            }
        }
    }
    text
}

/// Those that took part, or could not, in the order of the rows.
pub(super) fn peers<'r>(rows: &'r [Row], engine: &str) -> Vec<&'r str> {
    let mut peers: Vec<&str> = Vec::new();
    for row in rows.iter().filter(|row| row.engine == engine && row.who != "ours" && !row.who.starts_with("floor")) {
        if !peers.contains(&row.who.as_str()) {
            peers.push(&row.who);
        }
    }
    peers
}

/// Both beside the floor's neighbouring rounds where that was measured: it takes off what else the machine did.
fn ratio(ours: &Row, peer: &Row) -> Option<f64> {
    let beside = ours.ratio_to_floor.zip(peer.ratio_to_floor);
    beside.or(ours.ops_per_s.zip(peer.ops_per_s)).map(|(ours, peer)| ours / peer)
}

fn said(ratio: f64, peer: &Row) -> String {
    let place = if ratio >= 1.0 { "ahead" } else { "**behind**" };
    // Who takes the lock again at once, before the others ask, hands nothing over.
    let hogs = peer.case.contains("one name") && peer.evenness.is_some_and(|evenness| evenness < HANDS_OVER);
    format!("{place}{}", if hogs { ", but whoever has released mostly has it again" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_is_ahead_is_told_with_what_it_lacks() {
        let row = |who: &str, rate| Row {
            case: names::ONE_TASK.into(),
            engine: "redis".into(),
            who: who.into(),
            ops_per_s: rate,
            pinned: true,
            ..Row::default()
        };
        let mut away = row("redis-py Lock", None);
        away.not_measured = Some("not there".into());
        let text = table(&[row("ours", Some(90.0)), row("floor", Some(95.0)), row("SET NX", Some(100.0)), away]);
        assert!(text.contains("| redis | SET NX | one task | 0.90 | **behind** | no token"), "{text}");
        assert!(text.contains("| redis-py Lock | one task |  | not measured: not there |"), "{text}");
        assert!(!text.contains("| floor |"));
    }
}
