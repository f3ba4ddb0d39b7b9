//! The same program on any engine: a file or the environment says which.
//!
//! `FENCELOCK_URL=sqlite:/tmp/locks.db cargo run --example from_config`

#![allow(clippy::print_stdout, reason = "it is for people to read")]

use fencelock::{Config, ErrorKind, Result};
use std::process::ExitCode;
use std::time::Duration;

#[tokio::main]
async fn main() -> ExitCode {
    match work().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            println!("{e}");
            if e.kind() == ErrorKind::InvalidConfig {
                println!("Every setting is in `crates/fencelock/reference.toml`.");
            }
            ExitCode::FAILURE
        }
    }
}

async fn work() -> Result<()> {
    let config = Config::load()?;
    match config.path() {
        Some(path) => println!("configuration: {} and the environment", path.display()),
        None => println!("configuration: the environment, since there is no fencelock.toml"),
    }
    let locks = config.connect().await?;
    let guarantees = locks.guarantees();
    let level = guarantees.level().map_or("none", |level| level.as_str());
    println!("engine: {}, {}; level: {level}", guarantees.engine(), guarantees.deployment());

    let guard = locks.acquire("examples/from_config").await?;
    println!("holding {} with token {}", guard.name(), guard.token());
    guard.while_held(tokio::time::sleep(Duration::from_millis(50))).await?; // the work
    guard.release().await?;
    println!("released");
    locks.close().await;
    Ok(())
}
