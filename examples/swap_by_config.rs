//! One binary, a configuration file for each engine, no recompilation: the program never
//! names an engine, and refuses a deployment that gives less than the file requires.
//!
//! `cargo run --example swap_by_config -- examples/configs/*.toml`
//!
//! With `--features servers` all engines are compiled in; without, those that are not say so.

#![allow(clippy::print_stdout, reason = "it is for people to read")]

use fencelock::{Config, LockClient, Result};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[tokio::main]
async fn main() -> ExitCode {
    let files: Vec<_> = std::env::args_os().skip(1).collect();
    if files.is_empty() {
        println!("usage: swap_by_config FILE…, such as examples/configs/*.toml");
        return ExitCode::FAILURE;
    }
    let mut worked = 0;
    for file in files.iter().map(Path::new) {
        match connect(file).await {
            Ok(locks) => match work(&locks).await {
                Ok(done) => {
                    worked += 1;
                    println!("{}: {done}", file.display());
                }
                Err(e) => println!("{}: {e}", file.display()),
            },
            Err(e) => println!("{}: {e}", file.display()),
        }
    }
    println!("{worked} of {} configurations worked, with the same code.", files.len());
    if worked > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn connect(file: &Path) -> Result<LockClient> {
    Config::from_file(file)?.connect().await
}

/// What the program does; it knows nothing of engines.
async fn work(locks: &LockClient) -> Result<String> {
    let start = Instant::now();
    let guard = locks.acquire("reports/daily").await?;
    let (token, excluded) = (guard.token(), locks.try_acquire("reports/daily").await?.is_none());
    guard.while_held(tokio::time::sleep(Duration::from_millis(20))).await?;
    guard.release().await?;
    let found = locks.guarantees();
    let level = found.level().map_or("none", |level| level.as_str());
    let done =
        format!("{}, {level}; token {token}, others shut out: {excluded}, {:?}", found.engine(), start.elapsed());
    locks.close().await;
    Ok(done)
}
