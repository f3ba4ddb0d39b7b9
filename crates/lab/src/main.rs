//! Shows on real servers, under real faults, what each engine promises and what it does not.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is a program for a terminal")]

mod claim;
mod cleanup;
mod deployments;
mod experiment;
mod fault;
mod guarded;
mod hits;
mod plan;
mod promise;
mod report;
mod run;
mod runner;
mod self_test;
mod store;
mod verdict;
mod worker;

use clap::{Parser, Subcommand};
use fencelock_lab::Failure;
use std::path::PathBuf;
use std::process::ExitCode;

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
    /// What the lab becomes when it is to end at once.
    #[command(hide = true)]
    CleanUp { place: PathBuf },
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
    /// What the faults, their times and victims, and what workers choose follow from. How processes are
    /// scheduled it cannot decide, so that what meets what may differ.
    #[arg(long)]
    seed: Option<u64>,
    /// Mixed faults for this many minutes in all, shared evenly among the experiments and side by side as `--jobs`
    /// says; with `--fault`, that one instead. Without it each experiment does its own number of rounds.
    #[arg(long)]
    minutes: Option<f64>,
    /// How many experiments run side by side; 3 in a quick run, else 1.
    #[arg(long)]
    jobs: Option<usize>,
    /// Only each engine's main faults.
    #[arg(long)]
    quick: bool,
    /// Only what is wrong on purpose, and has to be found.
    #[arg(long, hide = true)]
    self_test: bool,
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
        Command::Run(run) => run::try_all(&run),
        Command::Worker { terms } => be_worker(&terms),
        Command::CleanUp { place } => Ok(cleanup::of_this_process(&place)),
    };
    done.unwrap_or_else(|e| {
        eprintln!("fencelock-lab: {e}");
        ExitCode::from(2)
    })
}

fn list() -> Result<ExitCode, Failure> {
    for experiment in plan::experiments().into_iter().chain(plan::self_test()) {
        println!("{}", run::described(&experiment));
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
