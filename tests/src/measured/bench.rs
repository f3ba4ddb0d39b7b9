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
    pub(super) run: Run,
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
        let run = runs.pop().ok_or("no line says how it was measured")?;
        Ok(Self { run, rows, budgets, peers })
    }

    /// On one processor.
    pub(super) fn row(&self, case: &str, engine: &str, who: &str) -> Option<&Row> {
        let is = |row: &&Row| row.case == case && row.engine == engine && row.who == who && row.pinned;
        self.rows.iter().find(|row| is(row) && row.not_measured.is_none())
    }
}

/// What the benchmark wrote, without what does not apply and the digits that say nothing.
pub(super) fn taken(rows: &str, date: &str, note: &str) -> Result<String> {
    let mut lines = values(rows)?;
    let is_how = |line: &Value| line.get("kind").and_then(Value::as_str) == Some("how");
    let how = lines.iter().position(is_how).ok_or("no line of the kind `how`: it was measured by an older version")?;
    let how = lines.remove(how);
    let quick = if how.get("quick").and_then(Value::as_bool) == Some(true) { " -- --quick" } else { "" };
    let command = format!("cargo run --release -p fencelock-bench{quick}");
    let mut kept = vec![serde_json::to_value(Run::here(date, command, note))?];
    if let Some(run) = kept.first_mut().and_then(Value::as_object_mut) {
        run.insert("kind".to_owned(), "run".into());
    }
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
        kept.push(line);
    }
    let text = written(&kept)?;
    let bench = Bench::read(&text)?;
    for engine in ENGINES {
        if bench.row("one task", engine, "ours").is_none() {
            return Err(format!("{engine} was not measured: only a run of all engines is kept").into());
        }
    }
    Ok(text)
}
