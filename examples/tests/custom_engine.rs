//! The contract suite on the engine of the example `custom_engine`.

#![allow(missing_docs, reason = "a test")]

#[allow(dead_code, reason = "its `main` is not run here")]
#[path = "../custom_engine.rs"]
mod custom_engine;

use async_trait::async_trait;
use custom_engine::{Board, BoardLock};
use fencelock::{DistributedLock, Polling, Result};
use fencelock_testkit::Harness;
use std::process::ExitCode;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;
use tokio::sync::watch;

/// In this process, so that there is no address to reach it by.
static BOARD: LazyLock<Arc<Mutex<Board>>> = LazyLock::new(Arc::default);
static REACHED: LazyLock<watch::Sender<bool>> = LazyLock::new(|| watch::Sender::new(true));

struct OnBoard;

#[async_trait]
impl Harness for OnBoard {
    const NAME: &'static str = "board";

    async fn start() -> Result<Self> {
        Ok(Self)
    }

    fn address(&self) -> String {
        String::new()
    }

    async fn connect(_address: &str) -> Result<Arc<dyn DistributedLock>> {
        let (request_timeout, polling) = (Duration::from_secs(1), Polling::new());
        Ok(Arc::new(BoardLock { board: Arc::clone(&BOARD), reached: REACHED.subscribe(), request_timeout, polling }))
    }

    async fn interrupt(&self) -> Result<()> {
        REACHED.send_replace(false);
        Ok(())
    }

    async fn heal(&self) -> Result<()> {
        REACHED.send_replace(true);
        Ok(())
    }
}

/// How long the engine is, without the service that it talks to.
fn lines() -> usize {
    let engine = include_str!("../custom_engine.rs").lines().skip_while(|line| !line.starts_with("// ---- the engine"));
    engine.take_while(|line| !line.starts_with("// ---- the service")).count()
}

fn main() -> ExitCode {
    assert!((50..120).contains(&lines()), "{} lines", lines());
    fencelock_testkit::main::<OnBoard>()
}
