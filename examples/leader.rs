//! Three processes, one leader: the next one takes over when it is killed, and one that
//! was paused steps down before it does anything else.
//!
//! `cargo run --example leader`

#![allow(clippy::print_stdout, reason = "it is for people to read")]

use fencelock::Result;
use rustix::process::{Pid, Signal, kill_process};
use std::error::Error;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

type Outcome<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// How long nobody leads, at most, after a leader has died.
const TTL: Duration = Duration::from_secs(3);

#[tokio::main]
async fn main() -> Outcome {
    match std::env::args().nth(1) {
        Some(url) => Ok(candidate(&url).await?),
        None => story().await,
    }
}

/// Leads whenever it can. The token is the term: give it to whom you lead, to refuse leaders of earlier terms.
async fn candidate(url: &str) -> Result<()> {
    let locks = fencelock::connect(url).await?;
    let leadership = locks.named("leader").ttl(TTL).wait_forever();
    loop {
        let guard = leadership.acquire().await?;
        println!("leads, term {}", guard.token());
        // What a leader does; dropped at its next await once the lock is lost.
        let lead = async {
            loop {
                tokio::time::sleep(TTL / 20).await;
            }
        };
        let ended: Result<()> = guard.while_held(lead).await;
        if let Err(lost) = ended {
            println!("steps down: {lost}");
        }
    }
}

async fn story() -> Outcome {
    let directory = tempfile::tempdir()?;
    let url = format!("sqlite:{}", directory.path().join("locks.db").display());
    let (tell, mut told) = mpsc::channel(16);
    let mut candidates = Vec::new();
    for name in ["anna", "ben", "cleo"] {
        candidates.push(start(name, &url, tell.clone())?);
    }
    let mut next = async |what: &str| -> Outcome<&'static str> {
        let start = Instant::now();
        let (name, said) = tokio::time::timeout(Duration::from_secs(30), told.recv()).await?.ok_or("all have ended")?;
        println!("{:>5} ms later  {name} {said}", start.elapsed().as_millis());
        if said.starts_with(what) { Ok(name) } else { Err(format!("{name} should have said `{what}`").into()) }
    };

    println!("Three candidates, ttl {TTL:?}:");
    let first = next("leads").await?;
    println!("{first} is killed:");
    if let Some((_, process)) = candidates.iter_mut().find(|(name, _)| *name == first) {
        process.kill().await?;
    }
    let second = next("leads").await?;
    println!("{second} is paused (SIGSTOP):");
    signal(&candidates, second, Signal::STOP)?;
    let third = next("leads").await?;
    println!("{second} goes on (SIGCONT), while {third} leads:");
    signal(&candidates, second, Signal::CONT)?;
    let down = next("steps down").await?;
    if down != second || third == second || second == first {
        return Err("the wrong one led".into());
    }
    println!("One leader at a time; what a paused one still sends carries a smaller term, and is to be refused.");
    Ok(())
}

/// This program again; what it prints is sent to `tell`. Killed when dropped.
fn start(name: &'static str, url: &str, tell: mpsc::Sender<(&'static str, String)>) -> Outcome<(&'static str, Child)> {
    let mut command = Command::new(std::env::current_exe()?);
    let mut process = command.arg(url).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
    let mut lines = BufReader::new(process.stdout.take().ok_or("no pipe")?).lines();
    tokio::spawn(async move {
        while let Ok(Some(line)) = lines.next_line().await {
            if tell.send((name, line)).await.is_err() {
                return;
            }
        }
    });
    Ok((name, process))
}

fn signal(candidates: &[(&str, Child)], name: &str, signal: Signal) -> Outcome {
    let found = candidates.iter().find(|(candidate, _)| *candidate == name).and_then(|(_, process)| process.id());
    let id = found.and_then(|id| Pid::from_raw(id.cast_signed())).ok_or("it has ended")?;
    Ok(kill_process(id, signal)?)
}
