//! An engine of one's own: it joins by its scheme, and is used like any other.
//!
//! `engine.rs` is the whole engine, and with `connect` below it has fewer than 120
//! lines. `board.rs` is not counted, as it stands for the service that the engine
//! talks to: what a database or a server with a lock of its own brings along, or
//! else has to be written too (it is as long again). It lives in this process only
//! so that the example needs no server.
//!
//! `tests/custom_engine.rs` beside this folder runs the contract suite on it.
//!
//! `cargo run --example custom_engine`

#![allow(clippy::print_stdout, reason = "it is for people to read")]

mod board;
mod engine;

use board::Board;
use engine::BoardLock;
use fencelock::{DistributedLock, Polling, Registry, Result, Target};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

/// What `board:?request_timeout=500ms` leads to.
fn connect(board: &Arc<Mutex<Board>>, target: Target) -> Result<Arc<dyn DistributedLock>> {
    let mut settings = target.url.settings;
    let request_timeout = settings.duration("request_timeout")?.unwrap_or(Duration::from_secs(1));
    settings.finish()?; // refuses what it does not know
    let (board, reached) = (Arc::clone(board), watch::channel(true).1);
    Ok(Arc::new(BoardLock { board, reached, request_timeout, polling: Polling::new() }))
}

#[tokio::main]
async fn main() -> Result<()> {
    let board = Arc::default();
    let registry = Registry::builtin().with("board", move |target| std::future::ready(connect(&board, target)));
    let client = || fencelock::builder("board:?request_timeout=500ms").registry(registry.clone()).connect();
    let (one, two) = (client().await?, client().await?);

    let guard = one.acquire("orders/1001").await?;
    let shut_out = two.try_acquire("orders/1001").await?.is_none();
    println!("one holds it with token {}, two is shut out: {shut_out}", guard.token());
    guard.release().await?;
    let guard = two.acquire("orders/1001").await?;
    println!("two holds it with token {}", guard.token());
    guard.release().await?;

    let misspelt = fencelock::builder("board:?request_timout=1s").registry(registry).connect().await;
    println!("a misspelt setting: {}", misspelt.err().map_or_else(String::new, |e| e.to_string()));
    Ok(())
}
