//! Eight processes contend for a few locks, each with an endpoint for Prometheus on
//! loopback; what is scraped there is compared with what the processes did.
//!
//! `cargo run -p fencelock-examples --features metrics --example metrics`

#![allow(clippy::print_stdout, reason = "it is for people to read")]

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use std::collections::BTreeMap;
use std::error::Error;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout, Command};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const PROCESSES: usize = 8;
const ROUNDS: usize = 25;

#[tokio::main]
async fn main() -> Outcome {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [directory, address] => worker(Path::new(directory), address.parse()?).await,
        _ => story().await,
    }
}

// ---- a worker: everything that a program has to do for its measures is the first statement ----

async fn worker(directory: &Path, address: SocketAddr) -> Outcome {
    PrometheusBuilder::new()
        .with_http_listener(address)
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &[0.001, 0.01, 0.1, 1.0, 10.0])?
        .install()?;

    // Eight processes write to one file, and who tries once may meet another's write each time.
    let patience = "request_timeout=30s&busy_timeout=20s";
    let locks = fencelock::connect(&format!("sqlite:{}?{patience}", directory.join("locks.db").display())).await?;
    let (mut granted, mut tried_in_vain) = (0, 0);
    for round in 0..ROUNDS {
        let name = format!("shelf/{}", round % 3);
        if locks.try_acquire(&name).await?.is_none() {
            tried_in_vain += 1;
            locks.acquire(&name).await?.release().await?;
        }
        // Either way it was granted once, and is free: what try_acquire gave was dropped.
        granted += 1;
    }
    locks.close().await;
    println!("granted {granted} contended {tried_in_vain}");
    // The endpoint lives until the scraper has seen the end.
    let mut line = String::new();
    BufReader::new(tokio::io::stdin()).read_line(&mut line).await?;
    Ok(())
}

// ---- the scraper ----

async fn story() -> Outcome {
    let directory = tempfile::tempdir()?;
    let mut workers = Vec::new();
    for _ in 0..PROCESSES {
        workers.push(Worker::start(directory.path())?);
    }
    // While they contend counters only grow. Gauges of several processes are no such check: each is read at another moment.
    let mut before = Measures::default();
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = scrape_all(&workers).await?;
        for (name, value) in before.iter().filter(|(name, _)| name.contains("_total")) {
            check(now.get(name).is_some_and(|now| now >= value), &format!("{name} has grown from {value}"))?;
        }
        before = now;
    }
    let mut history = (0.0, 0.0);
    for worker in &mut workers {
        let line = tokio::time::timeout(Duration::from_secs(120), worker.lines.next_line()).await??;
        let line = line.ok_or("a worker has ended")?;
        let numbers: Vec<f64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [granted, contended] = numbers[..] else { return Err(line.into()) };
        history = (history.0 + granted, history.1 + contended);
    }
    let measured = scrape_all(&workers).await?;
    let of = |name: &str| measured.get(name).copied().unwrap_or_default();
    let (granted, released) = (
        of("fencelock_acquires_total{engine=\"sqlite\",outcome=\"granted\"}"),
        of("fencelock_releases_total{engine=\"sqlite\"}"),
    );
    let contended = of("fencelock_acquires_total{engine=\"sqlite\",outcome=\"contended\"}");
    println!("the processes were granted {} locks, after {} tries in vain", history.0, history.1);
    println!("measured: {granted} granted, {released} released, {contended} contended");
    check((granted, contended) == history, "the measures are the history")?;
    check(released == granted, "all were released")?;
    check(of("fencelock_hold_seconds_count{engine=\"sqlite\"}") == granted, "every hold was timed")?;
    check(of("fencelock_wait_seconds_count{engine=\"sqlite\"}") == granted, "every wait was timed")?;
    check(of("fencelock_held{engine=\"sqlite\"}") == 0.0, "nothing is held")?;
    check(of("fencelock_waiting{engine=\"sqlite\"}") == 0.0, "nobody waits")?;
    for worker in workers {
        worker.end().await?;
    }
    Ok(())
}

fn check(so: bool, what: &str) -> Outcome {
    if so { Ok(()) } else { Err(format!("not so: {what}").into()) }
}

type Measures = BTreeMap<String, f64>;

/// The sum over all processes, by name and labels.
async fn scrape_all(workers: &[Worker]) -> Outcome<Measures> {
    let mut sum = Measures::new();
    for worker in workers {
        for line in scrape(worker.address).await?.lines().filter(|line| !line.starts_with('#')) {
            if let Some((name, value)) = line.rsplit_once(' ') {
                *sum.entry(name.to_owned()).or_default() += value.parse::<f64>()?;
            }
        }
    }
    Ok(sum)
}

async fn scrape(address: SocketAddr) -> Outcome<String> {
    let mut tries = 0;
    let mut stream = loop {
        tries += 1;
        match TcpStream::connect(address).await {
            Ok(stream) => break stream,
            Err(e) if tries == 100 => return Err(e.into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    tokio::time::timeout(Duration::from_secs(10), stream.read_to_string(&mut answer)).await??;
    Ok(answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

/// This program, run again. Killed when dropped.
struct Worker {
    address: SocketAddr,
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    fn start(directory: &Path) -> Outcome<Self> {
        // Free now, and very probably in a moment.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let mut process = Command::new(std::env::current_exe()?)
            .args([&directory.display().to_string(), &address.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let lines = BufReader::new(process.stdout.take().ok_or("a worker has no pipe")?).lines();
        Ok(Self { address, process, lines })
    }

    async fn end(self) -> Outcome {
        let Self { mut process, .. } = self;
        drop(process.stdin.take());
        process.wait().await?;
        Ok(())
    }
}
