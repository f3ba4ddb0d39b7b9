//! The whole run: a process for each engine, once on one processor and once on all,
//! so that no engine's end, or failure, is another's.

use crate::args::Run;
use crate::engine::Engine;
use crate::failure::Result;
use crate::report;
use crate::row::Row;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

pub(crate) fn run(run: &Run) -> Result<()> {
    let mut engines = if run.engine.is_empty() { Engine::ALL.to_vec() } else { run.engine.clone() };
    engines.dedup();
    let mut rows = Vec::new();
    for engine in engines {
        for pinned in [true, false] {
            eprintln!("{engine}, {}", if pinned { "on one processor" } else { "on all processors" });
            rows.extend(one(run, engine, pinned)?);
        }
    }
    if let Some(file) = &run.json {
        let lines: String = rows.iter().map(|row| row.to_json() + "\n").collect();
        std::fs::write(file, lines)?;
    }
    println!("{}", report::table(&rows));
    Ok(())
}

/// The rows of one engine; what ended it early is a row too.
fn one(run: &Run, engine: Engine, pinned: bool) -> Result<Vec<Row>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["one", engine.name()]);
    if run.quick {
        command.arg("--quick");
    }
    if pinned {
        command.arg("--pinned");
    }
    if !run.case.is_empty() {
        command.args(["--case", &run.case.join(",")]);
    }
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().ok_or("no output")?;
    let mut rows = Vec::new();
    for line in BufReader::new(output).lines() {
        if let Some(row) = Row::from_json(&line?) {
            eprintln!("{}", report::line(&row));
            rows.push(row);
        }
    }
    let status = child.wait()?;
    if !status.success() {
        let why = Some(format!("its process ended with {status}"));
        rows.push(Row {
            case: "all that follow".into(),
            engine: engine.name().into(),
            pinned,
            not_measured: why,
            ..Row::default()
        });
    }
    Ok(rows)
}
