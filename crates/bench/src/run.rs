//! The whole run: a process for each engine, once on one processor and once on all,
//! so that no engine's end, or failure, is another's.

use crate::args::Run;
use crate::cases::Plan;
use crate::engine::Engine;
use crate::failure::Result;
use crate::report;
use crate::row::Row;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

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
        std::fs::write(file, report::json(&rows, plan(run)))?;
    }
    if let Some(file) = &run.html {
        std::fs::write(file, report::page(&rows, &how(run)))?;
    }
    println!("{}\n\n{}", how(run), report::markdown(&rows));
    Ok(())
}

fn plan(run: &Run) -> report::How {
    let plan = Plan { quick: run.quick, pinned: true };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    report::How { quick: run.quick, rounds: plan.rounds(), round_ms: plan.round().as_millis(), processors }
}

/// How it was measured, in a few words.
fn how(run: &Run) -> String {
    let report::How { rounds, round_ms, processors, .. } = plan(run);
    format!(
        "Contenders in turn, {rounds} rounds of {round_ms} ms each; medians; a ratio is the median of the ratios of neighbouring rounds. \
         Client and server on one processor of {processors}; unpinned, on all. Servers on the same machine, which wait for no disk."
    )
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
    let watched = watch(&child, Duration::from_secs(if run.quick { 180 } else { 1_800 }));
    let mut rows = Vec::new();
    for line in BufReader::new(output).lines() {
        if let Some(row) = Row::from_json(&line?) {
            eprintln!("{}", report::line(&row));
            rows.push(row);
        }
    }
    drop(watched);
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

/// Kills it if the answer is not dropped in time: what hangs is one engine, and not the run.
fn watch(child: &Child, limit: Duration) -> mpsc::Sender<()> {
    let (done, waiting) = mpsc::channel();
    let process = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    std::thread::spawn(move || {
        if let (Err(mpsc::RecvTimeoutError::Timeout), Some(process)) = (waiting.recv_timeout(limit), process) {
            // It has not been waited for: the number is still its own. Its servers end with it.
            let _ = kill_process(process, Signal::KILL);
        }
    });
    done
}
