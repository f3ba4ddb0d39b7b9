//! What a process of our own does: one engine, one client, or one holder.

use crate::args::Part;
use crate::cases::{self, Bench, Plan};
use crate::contender::{client, connect, print, run_tasks, tasks};
use crate::engine::Engine;
use crate::failure::Result;
use crate::measure::{cpu, pin};
use crate::row::Row;
use crate::server::{Place, Server};
use std::future::Future;
use std::io::Write as _;
use std::time::Duration;
use tokio::io::AsyncBufReadExt as _;

pub(crate) fn play(part: &Part) -> Result<()> {
    match part {
        Part::Profile { engine, seconds, top } => {
            pin()?;
            let (engines, seconds, top) = (engine.clone(), *seconds, *top);
            on_a_worker(async move { crate::profile::run(&engines, seconds, top).await })
        }
        Part::One { engine, quick, pinned, case } => {
            if *pinned {
                pin()?;
            }
            on_a_worker(one(*engine, Plan { quick: *quick, pinned: *pinned }, case.clone()))
        }
        Part::Client { engine, who, url } => on_a_worker(be_client(who.clone(), Place::new(*engine, url))),
        Part::Holder { engine, url, name, ttl_ms, count } => {
            let (place, name, ttl) = (Place::new(*engine, url), name.clone(), Duration::from_millis(*ttl_ms));
            on_a_worker(hold(place, name, ttl, *count))
        }
    }
}

/// The runtime that most programs have, with a worker for each processor that it
/// may use; on a worker, since the main thread is woken more slowly.
fn on_a_worker<F: Future<Output = Result<()>> + Send + 'static>(work: F) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(async { tokio::spawn(work).await })?;
    // A dropped client's last words are not waited for.
    runtime.shutdown_timeout(Duration::from_secs(1));
    done
}

async fn one(engine: Engine, plan: Plan, wanted: Vec<String>) -> Result<()> {
    let server = Server::start(engine).await?;
    let place = server.place();
    let tell = |row: Row| {
        println!("{}", row.to_json());
        let _ = std::io::stdout().flush();
    };
    let mut bench = Bench { engine, server, place, plan, tell: Box::new(tell) };
    cases::all(&mut bench, &wanted).await;
    Ok(())
}

/// As [`Outside`](crate::contender) is told on the other side.
async fn be_client(who: String, place: Place) -> Result<()> {
    let contender = connect(&who, &place).await?;
    println!("ready");
    // As long as other cases' names are: with shorter ones the floor of etcd sends less in fewer writes.
    let prefix = format!("8-processes/{who}").replace(' ', "-");
    let mut known = Vec::new();
    let mut shape = String::new();
    let mut orders = tokio::io::BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = orders.next_line().await? {
        let mut words = line.split_ascii_whitespace();
        let (count, shared) = (words.next().unwrap_or("1"), words.next().unwrap_or("0"));
        let millis: u64 = words.next().ok_or("no time")?.parse()?;
        if shape != format!("{count} {shared}") {
            shape = format!("{count} {shared}");
            known = tasks(&*contender, &prefix, count.parse()?, shared == "1").await?;
        }
        let used = cpu::of_this_process();
        let (latencies, shares) = run_tasks(&mut known, Duration::from_millis(millis)).await?;
        println!("{}", print(cpu::of_this_process() - used, &shares, &latencies));
    }
    Ok(())
}

async fn hold(place: Place, name: String, ttl: Duration, count: usize) -> Result<()> {
    let locks = client(&place, ttl).await?;
    // What connections and buffers take, however many are held, is no hold's: as many again are held before.
    let _others = if count > 1 { cases::hold(&locks, "warm", count).await? } else { Vec::new() };
    let before = cpu::resident();
    let guards = cases::hold(&locks, &name, count).await?;
    println!("held {}", cpu::resident().saturating_sub(before) as f64 / count as f64);
    for guard in &guards {
        guard.lost().await;
    }
    Err("they were lost".into())
}
