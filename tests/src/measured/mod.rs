//! Runs whose results are kept in `measured/`, and the parts of the README that are written from them.
//!
//! The program `measured` puts a new run in place; a test compares.

mod bench;
mod costs;
mod date;
mod lab;
mod levels;
mod lines;
mod properties;
mod readme;
mod shown;
mod totals;
mod whole;
mod witnesses;
mod words;

pub use readme::{between, replaced};

use std::path::{Path, PathBuf};

/// What went wrong is for whoever puts a run in place.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The root of the repository.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn kept(file: &str) -> PathBuf {
    root().join("measured").join(file)
}

fn read(file: &Path) -> Result<String> {
    std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()).into())
}

/// How the whole of `tests/run` ended.
const WHOLE: &str = "tests.txt";

fn stages() -> Result<Vec<String>> {
    whole::stages(&read(&root().join("tests/run"))?)
}

fn lab(lines: &str) -> Result<lab::Lab> {
    let lab = lab::Lab::read(lines)?;
    totals::check(&lab)?;
    Ok(lab)
}

/// Keeps a whole run of the lab: its verdicts in JSON, and what it printed.
///
/// # Errors
///
/// When a file cannot be read or written, or the run is not a whole one.
pub fn keep_lab(report: &Path, log: &Path, note: &str) -> Result<()> {
    let lines = lab::taken(&read(report)?, &read(log)?, &date::of(report)?, note)?;
    shown::text(&lab(&lines)?)?;
    Ok(std::fs::write(kept("lab.jsonl"), lines)?)
}

/// Keeps a run of the lab's mixed faults: its verdicts in JSON.
///
/// # Errors
///
/// When a file cannot be read or written, or the run did something else than mixed faults.
pub fn keep_mixed(report: &Path, log: &Path, note: &str) -> Result<()> {
    let lines = lab::taken_mixed(&read(report)?, &read(log)?, &date::of(report)?, note)?;
    shown::mixed(&lab(&lines)?)?;
    Ok(std::fs::write(kept("lab-mixed.jsonl"), lines)?)
}

/// Keeps a run of the benchmark: its rows in JSON.
///
/// # Errors
///
/// When a file cannot be read or written, or the rows are not of all engines.
pub fn keep_bench(rows: &Path, note: &str) -> Result<()> {
    let lines = bench::taken(&read(rows)?, &date::of(rows)?, note, &read(&kept("bench.jsonl")).unwrap_or_default())?;
    costs::text(&bench::Bench::read(&lines)?)?;
    Ok(std::fs::write(kept("bench.jsonl"), lines)?)
}

/// Keeps how `tests/run` ended, of all or of one engine.
///
/// # Errors
///
/// When a file cannot be read or written, or the run was not green.
pub fn keep_tests(log: &Path) -> Result<()> {
    let (file, text) = whole::taken(&read(log)?, &date::of(log)?)?;
    if file == WHOLE {
        whole::all(Some(&text), &stages()?)?;
    }
    Ok(std::fs::write(kept(&file), text)?)
}

/// The service on which one task acquires and releases most often, by the benchmark that is kept.
///
/// # Errors
///
/// When it cannot be read.
pub fn quickest() -> Result<Option<String>> {
    let bench = bench::Bench::read(&read(&kept("bench.jsonl"))?)?;
    Ok(costs::quickest(&bench).map(str::to_owned))
}

/// What the README should say between each pair of marks.
///
/// # Errors
///
/// When what is kept cannot be read, or has something that the README has no words for.
pub fn parts() -> Result<Vec<(&'static str, String)>> {
    let bench = bench::Bench::read(&read(&kept("bench.jsonl"))?)?;
    // A run can be kept once it is green, and it is green with what is written here: without one there are no numbers.
    let whole = std::fs::read_to_string(kept(WHOLE)).ok();
    Ok(vec![
        ("one", whole::one(&read(&kept("tests-sqlite.txt"))?)?),
        ("whole", whole::all(whole.as_deref(), &stages()?)?),
        ("costs", costs::text(&bench)?),
        ("shown", shown::text(&lab(&read(&kept("lab.jsonl"))?)?)?),
        ("mixed", shown::mixed(&lab(&read(&kept("lab-mixed.jsonl"))?)?)?),
    ])
}
