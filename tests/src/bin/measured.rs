//! Puts a run in place in `measured/`, and writes the parts of the README that come from it.

#![allow(clippy::print_stderr, reason = "it is a program for a terminal")]

use fencelock_tests::measured::{Result, keep_bench, keep_lab, keep_mixed, keep_tests, parts, replaced, root};
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str =
    "usage: measured lab | mixed REPORT.jsonl LOG [NOTE] | bench ROWS.jsonl [NOTE] | tests LOG | readme";

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match keep(&arguments).and_then(|()| write_readme()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("measured: {e}");
            ExitCode::FAILURE
        }
    }
}

fn keep(arguments: &[&str]) -> Result<()> {
    match *arguments {
        ["lab", report, log] => keep_lab(Path::new(report), Path::new(log), ""),
        ["lab", report, log, note] => keep_lab(Path::new(report), Path::new(log), note),
        ["mixed", report, log] => keep_mixed(Path::new(report), Path::new(log), ""),
        ["mixed", report, log, note] => keep_mixed(Path::new(report), Path::new(log), note),
        ["bench", rows] => keep_bench(Path::new(rows), ""),
        ["bench", rows, note] => keep_bench(Path::new(rows), note),
        ["tests", log] => keep_tests(Path::new(log)),
        ["readme"] => Ok(()),
        _ => Err(USAGE.into()),
    }
}

fn write_readme() -> Result<()> {
    let file = root().join("README.md");
    let mut text = std::fs::read_to_string(&file)?;
    for (name, right) in parts()? {
        text = replaced(&text, name, &right)?;
    }
    Ok(std::fs::write(file, text)?)
}
