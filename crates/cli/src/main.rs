//! The command line of fencelock: `fencelock run NAME -- COMMAND`, and what an operator needs beside it.

mod args;
mod audit;
mod check;
mod choose;
mod commands;
mod connect;
mod exit;
mod logging;
mod output;
mod papers;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod purge;
#[cfg(feature = "redlock")]
mod redlock;
mod status;
mod table;
mod watch;

#[cfg(unix)]
mod progress;
#[cfg(unix)]
mod run;

use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(unix)]
    if let Some(code) = run::played_a_part() {
        return ExitCode::from(code);
    }
    ExitCode::from(commands::main())
}
