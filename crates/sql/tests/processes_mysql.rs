//! Eight processes that are killed and stopped, on MariaDB.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    missing_docs,
    reason = "a test"
)]

mod processes;
mod server;

use std::process::ExitCode;

fn main() -> ExitCode {
    processes::main::<server::My>("mysql", processes::contend!(server::My, fencelock_sql::mysql::MySqlGate))
}
