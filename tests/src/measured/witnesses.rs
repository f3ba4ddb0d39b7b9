//! What is not promised, and was shown to break.

use super::Result;
use super::lab::{Experiment, Lab, Verdict};
use super::words::{counted, engine, list, time};

/// Where, by which fault, and which experiments those are.
struct Kind {
    place: &'static str,
    fault: &'static str,
    is: fn(&Experiment) -> bool,
}

const fn kind(place: &'static str, fault: &'static str, is: fn(&Experiment) -> bool) -> Kind {
    Kind { place, fault, is }
}

const KINDS: [Kind; 11] = [
    kind("Redis without persistence", "killed and restarted; flushed; evicting", |of| {
        of.deployment == "no persistence"
    }),
    kind(
        "Redis with Sentinel",
        "fail-over to a replica that missed the last writes, because the master died or stood still",
        |of| of.deployment == "Sentinel",
    ),
    kind("Redis Cluster", "a master cut off from the others", |of| of.deployment.starts_with("Cluster")),
    kind("PostgreSQL with an asynchronous standby", "promoted without the last writes", |of| {
        of.deployment == "asynchronous standby"
    }),
    kind("ZooKeeper with a session of 4 s", "a follower cut off from its leader alone", |of| {
        of.fault == "follower-cut"
    }),
    kind(
        "etcd without the lease fixes",
        "a leader that was cut off, and stood still until another was elected, goes on",
        |of| of.engine == "etcd" && of.fault == "leader-stopped",
    ),
    kind("Redlock, five nodes", "a node that lost its data is let in at once, not after the delay", |of| {
        of.fault == "replaced-at-once"
    }),
    kind("", "the clock of the one server jumps forward, or runs four times too fast", |of| {
        of.engine != "redlock" && of.fault.starts_with("clock-")
    }),
    kind("Redlock, five nodes", "the clocks of three jump forward, or run four times too fast", |of| {
        of.engine == "redlock" && of.fault.starts_with("clock-")
    }),
    kind("ZooKeeper", "its data is gone (against T4)", |of| of.engine == "zookeeper" && of.fault == "server-wiped"),
    kind("", "what was acknowledged is gone (against T4)", |of| of.fault == "server-wiped" || of.fault == "flushed"),
];

/// The controls: what happens at data that checks no token, or checks it too late.
const CONTROLS: [(&str, &str); 2] = [
    ("G2 without a gate", "a holder stopped between its look and its write, at data that only the lock guards"),
    ("G2 checked at the write only", "the same, at data that checks the token at the write alone"),
];

pub(super) fn table(lab: &Lab) -> Result<String> {
    let mut rows: Vec<(&Kind, Vec<(&Experiment, &Verdict)>)> = KINDS.iter().map(|kind| (kind, Vec::new())).collect();
    let mut controls = CONTROLS.map(|(property, fault)| (property, fault, Vec::new()));
    for experiment in &lab.experiments {
        for verdict in experiment.verdicts.iter().filter(|verdict| verdict.1 == "broken") {
            let control = controls.iter_mut().find(|(property, ..)| *property == verdict.0);
            let row = rows.iter_mut().find(|(kind, _)| (kind.is)(experiment));
            match (control, row) {
                (Some((.., found)), _) => found.push((experiment, verdict)),
                (None, Some((_, found))) => found.push((experiment, verdict)),
                _ => return Err(format!("no words for {} in {}", verdict.0, experiment.id()).into()),
            }
        }
    }
    let mut text = "| where | fault | what was seen | tokens meanwhile |\n|---|---|---|---|\n".to_owned();
    for (Kind { place, fault, .. }, found) in rows.iter().filter(|(_, found)| !found.is_empty()) {
        let place = if place.is_empty() { places(found) } else { (*place).to_owned() };
        text.push_str(&format!("| {place} | {fault} | {} | {} |\n", seen(found)?, tokens(found)));
    }
    for (_, fault, found) in controls.iter().filter(|(.., found)| !found.is_empty()) {
        let (place, count) = (places(found), times(found));
        text.push_str(&format!("| {place} | {fault} | updates lost{count} | {} |\n", tokens(found)));
    }
    Ok(text)
}

/// The engines in which it was seen; if in none, those in which it was looked for.
fn places(found: &[(&Experiment, &Verdict)]) -> String {
    let seen = found.iter().any(|(_, verdict)| verdict.2 == "broken");
    let mut places: Vec<String> = Vec::new();
    for place in found.iter().filter(|(_, verdict)| verdict.2 == "broken" || !seen).map(|(of, _)| engine(&of.engine)) {
        if !places.iter().any(|known| known == place) {
            places.push(place.to_owned());
        }
    }
    list(&places)
}

/// In how many of the experiments.
fn times(found: &[(&Experiment, &Verdict)]) -> String {
    let broken = found.iter().filter(|(_, verdict)| verdict.2 == "broken").count();
    match found.len() {
        1 if broken == 1 => String::new(),
        all => format!(", in {broken} of {}", counted(all, "experiment")),
    }
}

fn seen(found: &[(&Experiment, &Verdict)]) -> Result<String> {
    let broken: Vec<_> = found.iter().filter(|(_, verdict)| verdict.2 == "broken").collect();
    if broken.is_empty() {
        return Ok(format!("looked for in {}, and not seen this time", counted(found.len(), "experiment")));
    }
    if broken.iter().all(|(_, verdict)| verdict.0 == "K2") {
        return Ok(format!("tokens smaller than before{}", times(found)));
    }
    let mut spans = Vec::new();
    for (experiment, verdict) in broken {
        let witness = verdict.5.as_deref().unwrap_or_default();
        let us = witness.rsplit_once(" for ").and_then(|(_, after)| after.strip_suffix(" us")?.parse::<u64>().ok());
        spans.push(us.ok_or_else(|| format!("no words for `{witness}` in {}", experiment.id()))?);
    }
    spans.sort_unstable();
    let span = match spans.as_slice() {
        [] => String::new(),
        [one] => time(*one),
        [first, .., last] => format!("{} to {}", time(*first), time(*last)),
    };
    Ok(format!("two held at once for {span}{}", times(found)))
}

/// Whether tokens were unique and grew where it was seen.
fn tokens(found: &[(&Experiment, &Verdict)]) -> &'static str {
    let verdicts = |property: &'static str| {
        let seen = found.iter().filter(|(_, verdict)| verdict.2 == "broken");
        seen.flat_map(|(of, _)| &of.verdicts).filter(move |verdict| verdict.0 == property)
    };
    let broken = |property| verdicts(property).any(|verdict| verdict.4 > 0);
    match (broken("K1"), broken("K2")) {
        (true, _) => "came twice",
        (false, true) => "smaller ones came later",
        (false, false) if verdicts("K2").all(|verdict| verdict.3 > 0) && verdicts("K2").next().is_some() => "grew",
        (false, false) => "–",
    }
}
