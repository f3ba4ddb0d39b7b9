//! What a lock costs: ours, the same commands sent raw, and what one would take
//! instead, in one run. How it is measured and how to read it is in the README.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is a program for a terminal")]

mod args;
mod cases;
mod contender;
mod engine;
mod failure;
mod measure;
mod part;
mod profile;
mod report;
mod row;
mod run;
mod server;

use args::Arguments;
use clap::Parser as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match arguments.part {
        Some(part) => part::play(&part),
        None => run::run(&arguments.run),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("fencelock-bench: {why}");
            ExitCode::FAILURE
        }
    }
}
