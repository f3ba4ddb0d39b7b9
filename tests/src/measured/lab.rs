//! A whole run of the lab, as it is kept: an experiment a line.

use super::Result;
use super::lines::{Run, is_plain, parsed, values, written};
use super::words::short;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A line of the lab's: what one experiment says of one property.
#[derive(Deserialize)]
struct Row {
    engine: String,
    deployment: String,
    level: String,
    server: String,
    fault: String,
    variant: String,
    property: String,
    expected: String,
    verdict: String,
    hits: u64,
    operations: u64,
    asked: u64,
    broken: u64,
    seed: u64,
    ran: f64,
    faulted: f64,
    witness: Option<String>,
}

/// The property, what was expected of it, what came, how many things could have broken it, how many did, and the shortest witness.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Verdict(
    pub(super) String,
    pub(super) String,
    pub(super) String,
    pub(super) u64,
    pub(super) u64,
    #[serde(default, skip_serializing_if = "Option::is_none")] pub(super) Option<String>,
);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Experiment {
    pub(super) engine: String,
    pub(super) deployment: String,
    pub(super) level: String,
    pub(super) server: String,
    pub(super) fault: String,
    pub(super) variant: String,
    pub(super) seed: u64,
    pub(super) hits: u64,
    pub(super) operations: u64,
    /// Seconds.
    pub(super) ran: f64,
    pub(super) faulted: f64,
    pub(super) verdicts: Vec<Verdict>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Claim {
    pub(super) engine: String,
    pub(super) server: String,
    pub(super) level: String,
    pub(super) confirmed: bool,
    pub(super) lacks: Vec<String>,
    pub(super) borrowed: Vec<String>,
    pub(super) above: String,
    pub(super) experiments: usize,
    pub(super) hits: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Guarded {
    pub(super) experiments: usize,
    pub(super) minutes: f64,
    pub(super) fault_minutes: f64,
    pub(super) mixed_minutes: f64,
    pub(super) faults: u64,
    pub(super) updates: u64,
    pub(super) lost: u64,
    pub(super) stale: u64,
    pub(super) accepted: u64,
}

/// What came of the whole: what the lab prints last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Told {
    pub(super) experiments: usize,
    pub(super) minutes: f64,
    pub(super) jobs: u64,
    pub(super) seed: u64,
    /// Those that could not be tried.
    pub(super) failed: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Line {
    Run(Run),
    Told(Told),
    Experiment(Experiment),
    Claim(Claim),
    Guarded(Guarded),
}

#[derive(Debug)]
pub(super) struct Lab {
    pub(super) run: Run,
    pub(super) told: Told,
    pub(super) experiments: Vec<Experiment>,
    pub(super) claims: Vec<Claim>,
    pub(super) guarded: Guarded,
}

impl Experiment {
    /// As the lab names it.
    pub(super) fn id(&self) -> String {
        let variant = if self.variant.is_empty() { String::new() } else { format!(" ({})", self.variant) };
        format!("{}/{}/{}{variant}", self.engine, self.deployment, self.fault)
    }

    fn begun(row: &Row) -> Self {
        let text = String::clone;
        Self {
            engine: text(&row.engine),
            deployment: text(&row.deployment),
            level: text(&row.level),
            server: text(&row.server),
            fault: text(&row.fault),
            variant: text(&row.variant),
            seed: row.seed,
            hits: row.hits,
            operations: row.operations,
            ran: short(row.ran),
            faulted: short(row.faulted),
            verdicts: Vec::new(),
        }
    }
}

impl Lab {
    pub(super) fn read(text: &str) -> Result<Self> {
        let (mut runs, mut told, mut experiments, mut claims, mut guarded) = (None, None, Vec::new(), Vec::new(), None);
        for line in parsed(text)? {
            match line {
                Line::Run(line) => runs = Some(line),
                Line::Told(line) => told = Some(line),
                Line::Experiment(line) => experiments.push(line),
                Line::Claim(line) => claims.push(line),
                Line::Guarded(line) => guarded = Some(line),
            }
        }
        let run = runs.ok_or("no line says how it was run")?;
        let told = told.ok_or("no line says what came of it")?;
        let guarded = guarded.ok_or("no line says what came of updates behind gates")?;
        Ok(Self { run, told, experiments, claims, guarded })
    }
}

/// What the lab wrote and printed, an experiment a line.
pub(super) fn taken(report: &str, log: &str, date: &str, note: &str) -> Result<String> {
    let told = told(log)?;
    if !is_whole(log, &told) {
        return Err("only a whole run is kept; this one left something out".into());
    }
    let command = format!("cargo run -p fencelock-lab -- run --jobs {} --seed {}", told.jobs, told.seed);
    lines(report, told, |_| command, date, note)
}

/// The same of a run of mixed faults alone, `run --minutes`.
pub(super) fn taken_mixed(report: &str, log: &str, date: &str, note: &str) -> Result<String> {
    let told = told(log)?;
    let (jobs, seed) = (told.jobs, told.seed);
    let command = |minutes: f64| {
        format!("cargo run -p fencelock-lab -- run --minutes {:.0} --jobs {jobs} --seed {seed}", minutes.ceil())
    };
    lines(report, told, command, date, note)
}

fn lines(report: &str, told: Told, command: impl FnOnce(f64) -> String, date: &str, note: &str) -> Result<String> {
    let (mut experiments, mut rest): (Vec<Experiment>, Vec<Line>) = (Vec::new(), Vec::new());
    for value in values(report)? {
        if !is_plain(&value) {
            rest.push(line(value)?);
            continue;
        }
        let row: Row = serde_json::from_value(value)?;
        let begun = Experiment::begun(&row);
        if experiments.last().is_none_or(|last| last.id() != begun.id()) {
            experiments.push(begun);
        }
        if let Some(last) = experiments.last_mut() {
            let Row { property, expected, verdict, asked, broken, witness, .. } = row;
            last.verdicts.push(Verdict(property, expected, verdict, asked, broken, witness));
        }
    }
    if experiments.len() != told.experiments {
        return Err(
            format!("the log tells of {} experiments, the report of {}", told.experiments, experiments.len()).into()
        );
    }
    // What was asked for counts what promises something behind gates.
    let promises = |of: &&Experiment| matches!(of.level.as_str(), "fenced" | "replicated");
    let minutes = experiments.iter().filter(promises).map(|of| of.ran).sum::<f64>() / 60.0;
    let lines = [Line::Run(Run::here(date, command(minutes), note)), Line::Told(told)];
    let lines = lines.into_iter().chain(experiments.into_iter().map(Line::Experiment)).chain(rest);
    written(&lines.collect::<Vec<_>>())
}

fn line(mut value: Value) -> Result<Line> {
    if let Some(fields) = value.as_object_mut() {
        for value in fields.values_mut() {
            if let (Some(number), true) = (value.as_f64(), value.is_f64()) {
                *value = short(number).into();
            }
        }
    }
    Ok(serde_json::from_value(value)?)
}

/// From the last line of the log, and those that say what could not be tried.
fn told(log: &str) -> Result<Told> {
    let last = log.lines().rev().find(|line| line.contains(" could not be tried") && line.contains(" experiments in "));
    let last = last.ok_or("the log does not say what came of the run")?;
    if last.ends_with("ended early") {
        return Err("only a whole run is kept; this one was ended early".into());
    }
    let before = |what: &str| last.split_once(what).and_then(|(before, _)| before.rsplit([' ', ',']).next());
    let missing = || format!("the log's last line is not understood: {last}");
    let number = |what: &str| before(what)?.parse().ok();
    let seed = last.split_once(", seed ").and_then(|(_, after)| after.split(':').next()?.parse().ok());
    let failed = log.lines().filter_map(|line| line.split_once(" could not be tried: ")).map(|(id, _)| id.to_owned());
    let told = Told {
        experiments: number(" experiments in ")
            .and_then(|number: u64| usize::try_from(number).ok())
            .ok_or_else(missing)?,
        minutes: before(" minutes").and_then(|minutes| minutes.parse().ok()).ok_or_else(missing)?,
        jobs: number(" at a time").ok_or_else(missing)?,
        seed: seed.ok_or_else(missing)?,
        failed: failed.collect(),
    };
    Ok(told)
}

fn is_whole(log: &str, told: &Told) -> bool {
    let of_all =
        log.lines().find_map(|line| line.strip_prefix('[')?.split_once(']')?.0.split_once('/')?.1.parse().ok());
    of_all == Some(told.experiments + told.failed.len()) && !log.contains(": not all of it tried;")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "[1/2] redis/a/b (seed 7)\nredis/a/c could not be tried: it is away\nredis · x · fenced: confirmed; 1 \
        experiments, 2 hits; y\n1 experiments in 0.5 minutes, 3 at a time, seed 7: 9 verdicts expected, 0 not as expected, 1 could \
        not be tried\n";

    #[test]
    fn what_the_lab_prints_last_is_understood() {
        let failed = vec!["redis/a/c".to_owned()];
        assert_eq!(told(LOG).unwrap(), Told { experiments: 1, minutes: 0.5, jobs: 3, seed: 7, failed });
        for wrong in [LOG.replace("not be tried\n", "not be tried; ended early\n"), String::new()] {
            assert!(told(&wrong).is_err(), "{wrong}");
        }
        let all = told(LOG).unwrap();
        assert!(is_whole(LOG, &all));
        for part in [LOG.replace("[1/2]", "[1/3]"), LOG.replace("confirmed;", "not all of it tried;")] {
            assert!(!is_whole(&part, &all), "{part}");
        }
    }

    #[test]
    fn the_verdicts_of_an_experiment_are_one_line() {
        let row = |property: &str, witness: &str| {
            format!(
                "{{\"engine\":\"redis\",\"deployment\":\"a\",\"level\":\"fenced\",\"server\":\"x\",\"fault\":\"b\",\"variant\":\"\",\
                 \"property\":\"{property}\",\"expected\":\"holds\",\"verdict\":\"holds\",\"hits\":2,\"operations\":3,\"asked\":4,\
                 \"broken\":0,\"seed\":7,\"ran\":1.23456,\"faulted\":0.5,\"witness\":{witness}}}\n"
            )
        };
        let guarded = "{\"kind\":\"guarded\",\"experiments\":1,\"minutes\":45.13139,\"fault_minutes\":0.0,\"mixed_minutes\":0.0,\
            \"faults\":1,\"updates\":2,\"lost\":0,\"stale\":0,\"accepted\":0}\n";
        let report = row("E1", "null") + &row("E2", "\"so\"") + guarded;
        let kept = taken(&report, LOG, "2026-01-01", "").unwrap();
        assert!(
            kept.contains("\"verdicts\":[[\"E1\",\"holds\",\"holds\",4,0],[\"E2\",\"holds\",\"holds\",4,0,\"so\"]]"),
            "{kept}"
        );
        let lab = Lab::read(&kept).unwrap();
        assert_eq!(lab.experiments.len(), 1);
        assert_eq!(lab.run.command, "cargo run -p fencelock-lab -- run --jobs 3 --seed 7");
        assert!((lab.guarded.minutes - 45.13).abs() < 1e-9);
        let twice = report.replace("\"fault\":\"b\"", "\"fault\":\"c\"");
        assert!(taken(&(row("E1", "null") + &twice), LOG, "2026-01-01", "").is_err());
    }
}
