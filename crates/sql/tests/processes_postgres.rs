//! Eight processes that are killed and stopped, on PostgreSQL.
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
    processes::main::<server::Pg>("postgres", processes::contend!(server::Pg, fencelock_sql::postgres::PostgresGate))
}
