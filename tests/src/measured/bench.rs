//! A run of the benchmark, as it is kept.

use super::Result;
use super::lines::{Run, is_plain, parsed, values, written};
use super::words::short;
use serde::Deserialize;
use serde_json::Value;

/// The engines, in the order of the tables; in memory there is no wire that could be measured against.
pub(super) const ENGINES: [&str; 7] = ["sqlite", "postgres", "mysql", "redis", "redlock", "etcd", "zookeeper"];

/// What one contender did in one case; what else the benchmark writes of it is kept too.
#[derive(Debug, Deserialize)]
pub(super) struct Row {
    pub(super) case: String,
    pub(super) engine: String,
    pub(super) who: String,
    pub(super) ops_per_s: Option<f64>,
    pub(super) ratio_to_floor: Option<f64>,
    pub(super) rounds: usize,
    pub(super) pinned: bool,
    pub(super) evenness: Option<f64>,
    pub(super) not_measured: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Budget {
    pub(super) engine: String,
    pub(super) what: String,
    pub(super) value: f64,
    pub(super) limit: f64,
    pub(super) is_least: bool,
    pub(super) met: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct Peer {
    pub(super) engine: String,
    pub(super) who: String,
    pub(super) lacks: String,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Line {
    Run(Run),
    Row(Row),
    Budget(Budget),
    Peer(Peer),
}

#[derive(Debug)]
pub(super) struct Bench {
    /// The run of all engines.
    pub(super) run: Run,
    /// Those of some, after it.
    pub(super) later: Vec<Run>,
    pub(super) rows: Vec<Row>,
    pub(super) budgets: Vec<Budget>,
    pub(super) peers: Vec<Peer>,
}

impl Bench {
    pub(super) fn read(text: &str) -> Result<Self> {
        let (mut runs, mut rows, mut budgets, mut peers) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for line in parsed(text)? {
            match line {
                Line::Run(run) => runs.push(run),
                Line::Row(row) => rows.push(row),
                Line::Budget(budget) => budgets.push(budget),
                Line::Peer(peer) => peers.push(peer),
            }
        }
        let (mut whole, later): (Vec<_>, Vec<_>) = runs.into_iter().partition(|run: &Run| run.engines.is_empty());
        let run = whole.pop().ok_or("no line says how it was measured")?;
        Ok(Self { run, later, rows, budgets, peers })
    }

    /// On one processor.
    pub(super) fn row(&self, case: &str, engine: &str, who: &str) -> Option<&Row> {
        let is = |row: &&Row| row.case == case && row.engine == engine && row.who == who && row.pinned;
        self.rows.iter().find(|row| is(row) && row.not_measured.is_none())
    }
}

/// What the benchmark wrote, without what does not apply and the digits that say nothing. A run of some engines
/// takes the place of what was kept of these `before`: a ratio is to what ran beside it.
pub(super) fn taken(rows: &str, date: &str, note: &str, before: &str) -> Result<String> {
    let mut lines = values(rows)?;
    let is_how = |line: &Value| line.get("kind").and_then(Value::as_str) == Some("how");
    let how = lines.iter().position(is_how).ok_or("no line of the kind `how`: it was measured by an older version")?;
    let how = lines.remove(how);
    let quick = if how.get("quick").and_then(Value::as_bool) == Some(true) { " -- --quick" } else { "" };
    let mut run = Run::here(date, format!("cargo run --release -p fencelock-bench{quick}"), note);
    let mut rest = Vec::with_capacity(lines.len());
    for mut line in lines {
        let plain = is_plain(&line);
        let Some(fields) = line.as_object_mut() else { return Err("a line is no object".into()) };
        fields.retain(|_, value| !value.is_null());
        for (name, value) in fields.iter_mut() {
            // A limit that is rounded might be met.
            if let (Some(number), false, true) = (value.as_f64(), name == "limit", value.is_f64()) {
                *value = short(number).into();
            }
        }
        if plain {
            fields.insert("kind".to_owned(), "row".into());
        }
        rest.push(line);
    }
    let has = |engine: &str| rest.iter().any(|line| of(line) == Some(engine));
    let mut kept = Vec::new();
    if !ENGINES.into_iter().all(has) {
        run.engines = ENGINES.into_iter().filter(|engine| has(engine)).map(str::to_owned).collect();
        kept = others(before, &run.engines)?;
    }
    let mut run = serde_json::to_value(run)?;
    if let Some(run) = run.as_object_mut() {
        run.insert("kind".to_owned(), "run".into());
    }
    kept.push(run);
    kept.append(&mut rest);
    let text = written(&kept)?;
    let bench = Bench::read(&text)?;
    for engine in ENGINES {
        if bench.row("one task", engine, "ours").is_none() {
            return Err(format!("{engine} was not measured").into());
        }
    }
    Ok(text)
}

/// The engine that a line is about.
fn of(line: &Value) -> Option<&str> {
    line.get("engine").and_then(Value::as_str)
}

/// What is kept, without what is about these engines.
fn others(before: &str, engines: &[String]) -> Result<Vec<Value>> {
    let mut kept = values(before)?;
    kept.retain(|line| !of(line).is_some_and(|engine| engines.iter().any(|one| one == engine)));
    for line in &mut kept {
        if let Some(measured) = line.get_mut("engines").and_then(Value::as_array_mut) {
            measured.retain(|engine| !engines.iter().any(|one| engine == one));
        }
    }
    // A run of which nothing is left.
    kept.retain(|line| line.get("engines").and_then(Value::as_array).is_none_or(|engines| !engines.is_empty()));
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(engines: &[&str], rate: f64) -> String {
        let row = |engine| {
            format!(
                r#"{{"case":"one task","engine":"{engine}","who":"ours","ops_per_s":{rate},"rounds":9,"pinned":true}}"#
            )
        };
        let rows: Vec<_> = engines.iter().map(row).collect();
        format!("{{\"kind\":\"how\"}}\n{}\n", rows.join("\n"))
    }

    #[test]
    fn a_run_of_some_takes_the_place_of_theirs() {
        let whole = taken(&rows(&ENGINES, 1.0), "2026-01-01", "", "").unwrap();
        let once = taken(&rows(&["redis", "etcd"], 2.0), "2026-01-02", "", &whole).unwrap();
        let twice = taken(&rows(&["etcd"], 3.0), "2026-01-03", "", &once).unwrap();
        let bench = Bench::read(&twice).unwrap();
        let rates = ["mysql", "redis", "etcd"].map(|engine| bench.row("one task", engine, "ours").unwrap().ops_per_s);
        assert_eq!(rates, [Some(1.0), Some(2.0), Some(3.0)]);
        assert_eq!((bench.run.date.as_str(), bench.rows.len()), ("2026-01-01", ENGINES.len()));
        let later: Vec<_> = bench.later.iter().map(|run| (run.date.as_str(), run.engines.join(" "))).collect();
        assert_eq!(later, [("2026-01-02", "redis".to_owned()), ("2026-01-03", "etcd".to_owned())]);
        assert!(taken(&rows(&["etcd"], 3.0), "2026-01-03", "", "").is_err(), "the others were never measured");
    }
}
