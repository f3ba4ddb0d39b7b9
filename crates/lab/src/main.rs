//! Shows on real servers, under real faults, what each engine promises and what it does not.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is a program for a terminal")]

mod claim;
mod deployments;
mod experiment;
mod fault;
mod hits;
mod promise;
mod report;
mod runner;
mod store;
mod verdict;
mod worker;

use clap::{Parser, Subcommand};
use experiment::Experiment;
use fencelock_lab::Failure;
use report::Report;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Every guarantee shown on real servers under real faults.
#[derive(Parser)]
#[command(name = "fencelock-lab")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// What can be tried.
    List,
    /// Tries it, and ends with status 0 only if every verdict is the expected one.
    Run(Run),
    /// What the lab starts itself as.
    #[command(hide = true)]
    Worker { terms: PathBuf },
}

#[derive(clap::Args)]
struct Run {
    /// Only this engine; may be given several times.
    #[arg(long)]
    engine: Vec<String>,
    /// Only this deployment of it.
    #[arg(long)]
    deployment: Vec<String>,
    /// Only this fault.
    #[arg(long)]
    fault: Vec<String>,
    /// What the times and victims of the faults follow from.
    #[arg(long)]
    seed: Option<u64>,
    /// How long in all, in minutes, shared evenly; without it each experiment does its own number of rounds.
    #[arg(long)]
    minutes: Option<f64>,
    /// How many experiments run side by side; 3 in a quick run, else 1.
    #[arg(long)]
    jobs: Option<usize>,
    /// Only each engine's main faults.
    #[arg(long)]
    quick: bool,
    /// Writes the verdicts, a line of JSON each.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Writes the report, one page.
    #[arg(long)]
    html: Option<PathBuf>,
    /// Keeps the histories in this folder.
    #[arg(long)]
    keep: Option<PathBuf>,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::List => list(),
        Command::Run(run) => try_all(&run),
        Command::Worker { terms } => be_worker(&terms),
    };
    done.unwrap_or_else(|e| {
        eprintln!("fencelock-lab: {e}");
        ExitCode::from(2)
    })
}

fn list() -> Result<ExitCode, Failure> {
    for experiment in deployments::experiments() {
        let named = |all: &[experiment::Asked]| all.iter().map(|asked| asked.id()).collect::<Vec<_>>().join(", ");
        let quick = if experiment.quick { " (quick)" } else { "" };
        println!(
            "{}{quick}: holds {}; breaks {}",
            experiment.id(),
            named(&experiment.holds),
            named(&experiment.breaks)
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn be_worker(terms: &std::path::Path) -> Result<ExitCode, Failure> {
    // Not even a stopped worker outlives the lab.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(std::io::Error::from)?;
    let terms = worker::terms(terms)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match runtime.block_on(worker::live(terms)) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(e) => Err(Failure::new(e.to_string())),
    }
}

fn chosen(run: &Run) -> Result<Vec<Experiment>, Failure> {
    let is = |wanted: &[String], it: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == it);
    let experiments: Vec<_> = deployments::experiments()
        .into_iter()
        .filter(|e| is(&run.engine, e.engine) && is(&run.deployment, e.deployment) && is(&run.fault, &e.fault_id()))
        .filter(|e| !run.quick || e.quick)
        .collect();
    if experiments.is_empty() {
        return Err(Failure::new("nothing of that kind can be tried; see `list`"));
    }
    Ok(experiments)
}

fn try_all(run: &Run) -> Result<ExitCode, Failure> {
    end_on_signals();
    let experiments = chosen(run)?;
    let seed = run.seed.unwrap_or_else(|| fastrand::u64(0..1_000_000));
    let count = u32::try_from(experiments.len()).unwrap_or(u32::MAX);
    let share = run.minutes.map(|minutes| Duration::from_secs_f64((minutes * 60.0).max(1.0)) / count);
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let jobs = run.jobs.unwrap_or(if run.quick { 3 } else { 1 }).clamp(1, 8);
    std::thread::scope(|threads| {
        for _ in 0..jobs {
            threads.spawn(|| {
                while !runner::ENDED.load(Ordering::Relaxed) {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(experiment) = experiments.get(at) else { break };
                    eprintln!("[{}/{}] {} (seed {seed})", at + 1, experiments.len(), experiment.id());
                    let outcome = try_one(run, experiment, seed, share);
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    match &outcome {
                        Ok(report) => report::tell(&report.rows),
                        Err(e) => eprintln!("{} could not be tried: {e}", experiment.id()),
                    }
                    done.push((at, outcome));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(at, _)| *at);
    let (tried, failed): (Vec<_>, Vec<_>) = done.into_iter().map(|(_, outcome)| outcome).partition(Result::is_ok);
    let reports: Vec<_> = tried.into_iter().flatten().collect();
    if let Some(file) = &run.json {
        report::write_json(file, &reports)?;
    }
    if let Some(file) = &run.html {
        std::fs::write(file, report::page(&reports))?;
    }
    let rows = || reports.iter().flat_map(|report| &report.rows);
    let wrong = rows().filter(|row| !row.is_as_expected()).count();
    let ended = runner::ENDED.load(Ordering::Relaxed);
    let asked = rows().filter(|row| row.expected != verdict::Expected::Nothing).count();
    println!(
        "{} experiments, {asked} verdicts expected, {wrong} not as expected, {} could not be tried{}",
        reports.len(),
        failed.len(),
        if ended { "; ended early" } else { "" }
    );
    Ok(if wrong == 0 && failed.is_empty() && !ended { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// How often a witness is looked for. One is enough, and it is a matter of chance
/// where a fault meets a holder; what must hold has to hold each time.
const TRIES: u64 = 3;

fn try_one(run: &Run, experiment: &Experiment, seed: u64, share: Option<Duration>) -> Result<Report, Failure> {
    let first = seed;
    for seed in first.. {
        let folder = folder(run, experiment, seed)?;
        let last = seed >= first + TRIES - 1 || runner::ENDED.load(Ordering::Relaxed);
        let ran = match runner::run(experiment, seed, share, folder.path()) {
            Ok(ran) => ran,
            // A worker that ended has seen something; servers that did not come up may the next time.
            Err(e) if last || e.to_string().starts_with("worker ") => return Err(e),
            Err(e) => {
                eprintln!("{}: {e}; again with seed {}", experiment.id(), seed + 1);
                continue;
            }
        };
        let rows = verdict::judge(experiment, seed, &ran);
        let broken =
            rows.iter().any(|row| row.expected == verdict::Expected::Holds && row.verdict == verdict::Came::Broken);
        let done = rows.iter().all(verdict::Row::is_as_expected);
        if broken || done || last {
            return Ok(Report { experiment: experiment.clone(), found: ran.found, rows, events: ran.events });
        }
        eprintln!(
            "{}: nothing broken, and not all shown that was looked for; again with seed {}",
            experiment.id(),
            seed + 1
        );
    }
    Err(Failure::new("no seed is left"))
}

enum Folder {
    Kept(PathBuf),
    Passing(tempfile::TempDir),
}

impl Folder {
    fn path(&self) -> &std::path::Path {
        match self {
            Self::Kept(path) => path,
            Self::Passing(folder) => folder.path(),
        }
    }
}

fn folder(run: &Run, experiment: &Experiment, seed: u64) -> Result<Folder, Failure> {
    let Some(keep) = &run.keep else {
        return Ok(Folder::Passing(tempfile::Builder::new().prefix("fencelock-lab-").tempdir()?));
    };
    let folder = keep.join(format!("{}-{seed}", experiment.id().replace(['/', ' '], "-")));
    std::fs::create_dir_all(keep)?;
    std::fs::create_dir(&folder).map_err(|e| Failure::new(format!("{}: {e}", folder.display())))?;
    Ok(Folder::Kept(folder))
}

/// The first signal ends the run in order, so that nothing is left behind.
fn end_on_signals() {
    std::thread::spawn(|| {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
        runtime.block_on(async {
            use tokio::signal::unix::{SignalKind, signal};
            let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
            let mut signals: Vec<_> = kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect();
            let first = signals.iter_mut().map(|signal| Box::pin(signal.recv()));
            let mut first: Vec<_> = first.collect();
            std::future::poll_fn(|context| {
                if first.iter_mut().any(|signal| signal.as_mut().poll(context).is_ready()) {
                    std::task::Poll::Ready(())
                } else {
                    std::task::Poll::Pending
                }
            })
            .await;
            runner::ENDED.store(true, Ordering::Relaxed);
        });
    });
}
