//! One program on every engine: what becomes of a holder that is paused, of one that
//! crashes, and of one that is cut off while the server is killed; and what an acquire costs.
//!
//! `cargo run --example compare_guarantees` compares memory, a SQLite file and, if one is
//! configured (`FENCELOCK_URL` or a file), the service of the configuration;
//! `cargo run -p fencelock-examples --features servers --example compare_guarantees -- --html page.html`
//! starts a server of every kind that this host has, and writes a page with time lines too.

#![allow(clippy::print_stdout, reason = "it is for people to read")]

use fencelock::memory::MemoryServer;
use fencelock::sql::sqlite::SqliteGate;
use fencelock::{Admission, Config, FencingToken};
use rustix::process::Signal;
use seller::{pairs, seller};
use std::error::Error;
use std::path::Path;
use std::time::{Duration, SystemTime};
use worker::Worker;

mod page;
mod seller;
mod servers;
mod worker;

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// The same everywhere, so that what follows from it can be compared.
const TTL: Duration = Duration::from_secs(2);

#[tokio::main]
async fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["worker", url, folder] => {
            let locks =
                if url == "configured" { Config::load()?.connect().await? } else { fencelock::connect(url).await? };
            seller(locks, Path::new(folder), tokio::io::stdin(), tokio::io::stdout()).await
        }
        ["--html", file] => compare(Some(Path::new(file))).await,
        [] => compare(None).await,
        _ => Err("usage: compare_guarantees [--html FILE]".into()),
    }
}

// ---- the story, the same on every engine ----

/// An engine, where it is, by which way alice reaches it, and how its server is hurt.
struct Place {
    name: &'static str,
    url: String,
    alices: Option<String>,
    memory: Option<MemoryServer>,
    suffer: Option<Suffer>,
}

type Suffer = Box<dyn FnMut(Fault) -> Outcome + Send>;

/// The way of alice is cut and the server killed and started again; the way is mended.
#[derive(Clone, Copy)]
enum Fault {
    Begins,
    Ends,
}

/// What one engine did.
struct Report {
    name: &'static str,
    cells: Vec<String>,
    scenes: Vec<Scene>,
    worker: Worker,
    _folder: tempfile::TempDir,
    _server: Option<Suffer>,
}

/// A piece of a time line; all times are microseconds of the wall clock.
struct Scene {
    title: &'static str,
    from: u64,
    /// Who held: lane, from, until.
    holds: Vec<(usize, u64, u64)>,
    /// What went wrong on a lane, or on both: lane, from, until, what.
    faults: Vec<(Option<usize>, u64, u64, &'static str)>,
    /// What was said.
    notes: Vec<(u64, String)>,
}

impl Scene {
    /// When two held at once, if they did.
    fn both(&self) -> Option<(u64, u64)> {
        let [(_, a, b), (_, c, d)] = self.holds[..] else { return None };
        Some((a.max(c), b.min(d))).filter(|(from, to)| from < to)
    }
}

async fn story(mut place: Place) -> Outcome<Report> {
    let folder = tempfile::tempdir()?;
    let gate = SqliteGate::open(folder.path().join("data.db")).await?;
    if let Admission::Admitted(mut pass) = gate.transaction("reading", FencingToken::new(0)).await? {
        let make =
            "CREATE TABLE stock (kind TEXT, pairs INTEGER); INSERT INTO stock VALUES ('open', 10), ('gated', 10)";
        sqlx::raw_sql(make).execute(&mut *pass).await?;
        pass.commit().await?;
    }
    let alices = place.alices.clone().unwrap_or_else(|| place.url.clone());
    let (mut alice, mut bob) =
        (Worker::start(&place, &alices, folder.path())?, Worker::start(&place, &place.url, folder.path())?);
    let mut cells: Vec<String> = alice.ask("level").await?.split('\t').map(str::to_owned).collect();
    let mut scenes = Vec::new();

    // A pause: the whole process stands still, and knows nothing of it.
    alice.tell("acquire").await?;
    let from = alice.granted().await?.ok_or("alice was not granted the free lock")?;
    alice.ask("read").await?;
    tokio::time::sleep(TTL / 10).await;
    let paused = now();
    alice.pause(Signal::STOP).await?;
    bob.tell("acquire").await?;
    let next = bob.granted().await?.ok_or("bob was not granted the lock")?;
    bob.ask("read").await?;
    bob.ask("write").await?;
    tokio::time::sleep(TTL / 10).await;
    alice.pause(Signal::CONT).await?;
    let woken = now();
    let (until, says) = alice.believed().await?;
    let stale = alice.ask("write").await?;
    tokio::time::sleep(TTL / 20).await;
    let (bob_until, _) = bob.believed().await?;
    bob.ask("release").await?;
    alice.ask("release").await?;
    let (open, gated) = (pairs(&gate, "open").await?, pairs(&gate, "gated").await?);
    let lost = if open == 9 { "accepted, a sale lost" } else { "harmless" };
    cells.extend([seconds(next - paused), format!("lost: {says}"), lost.to_owned(), format!("{stale}, {gated} left")]);
    let notes = vec![
        (from, "alice acquires, and reads that there are 10 pairs".to_owned()),
        (paused, "alice is paused".to_owned()),
        (next, "bob is granted the lock, and sells a pair of each stock".to_owned()),
        (
            woken,
            format!(
                "alice goes on; asked, she says that she lost the lock ({says}); she writes all the same: {lost} without a gate, {stale} by the gate"
            ),
        ),
    ];
    let faults = vec![(Some(0), paused, woken, "paused")];
    scenes.push(Scene {
        title: "A holder is paused",
        from,
        holds: vec![(0, from, until), (1, next, bob_until)],
        faults,
        notes,
    });

    // A crash: nothing is released.
    if place.memory.is_none() {
        alice.tell("acquire").await?;
        let from = alice.granted().await?.ok_or("alice was not granted the free lock")?;
        tokio::time::sleep(TTL / 10).await;
        if let Some(mut process) = alice.process.take() {
            process.kill().await?;
        }
        let crashed = now();
        bob.tell("acquire").await?;
        let next = bob.granted().await?.ok_or("bob was not granted the lock")?;
        tokio::time::sleep(TTL / 10).await;
        let (until, _) = bob.believed().await?;
        bob.ask("release").await?;
        cells.push(seconds(next - crashed));
        let notes = vec![
            (from, "alice acquires".to_owned()),
            (crashed, "alice is killed (SIGKILL)".to_owned()),
            (next, format!("bob is granted the lock, {} later", seconds(next - crashed))),
        ];
        scenes.push(Scene {
            title: "A holder crashes",
            from,
            holds: vec![(0, from, crashed), (1, next, until)],
            faults: vec![],
            notes,
        });
        alice = Worker::start(&place, &alices, folder.path())?;
        alice.ask("level").await?;
    } else {
        cells.push("gone with it".to_owned());
    }

    // The worst for a lock service: the holder is cut off, and the server killed and started again.
    if let Some(mut suffer) = place.suffer.take() {
        alice.tell("acquire").await?;
        let from = alice.granted().await?.ok_or("alice was not granted the free lock")?;
        bob.tell("grab").await?;
        tokio::time::sleep(TTL / 10).await;
        let down = now();
        suffer = tokio::task::spawn_blocking(move || suffer(Fault::Begins).map(|()| suffer)).await??;
        let up = now();
        let next = bob.granted().await?.ok_or("bob was not granted the lock")?;
        tokio::time::sleep(TTL.saturating_sub(Duration::from_micros(now().saturating_sub(from)))).await;
        let ((until, says), (bob_until, _)) = (alice.believed().await?, bob.believed().await?);
        let mut notes = vec![
            (from, "alice acquires; bob asks all the time".to_owned()),
            (down, "alice is cut off, and the server killed".to_owned()),
            (up, "the server is up again, alice is not".to_owned()),
            (next, "bob is granted the lock".to_owned()),
            (until, format!("alice, who cannot reach anybody, has lost the lock: {says}")),
        ];
        notes.sort();
        let holds = vec![(0, from, until), (1, next, bob_until)];
        let faults = vec![(Some(0), down, bob_until, "cut off"), (Some(1), down, up, "server down")];
        let scene = Scene {
            title: "A holder is cut off, and the server is killed and started again",
            from,
            holds,
            faults,
            notes,
        };
        cells.push(match scene.both() {
            Some((from, to)) => format!("TWO HOLDERS for {}", seconds(to - from)),
            None => format!("{}, one holder", seconds(next - down)),
        });
        scenes.push(scene);
        suffer = tokio::task::spawn_blocking(move || suffer(Fault::Ends).map(|()| suffer)).await??;
        alice.ask("release").await?;
        bob.ask("release").await?;
        place.suffer = Some(suffer);
    } else {
        cells.push("-".to_owned());
    }
    Ok(Report { name: place.name, cells, scenes, worker: bob, _folder: folder, _server: place.suffer })
}

/// Microseconds of the wall clock, which all processes of a host share.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

fn seconds(micros: u64) -> String {
    format!("{:.2} s", Duration::from_micros(micros).as_secs_f64())
}

// ---- where it is played ----

fn here(name: &'static str, url: impl Into<String>) -> Place {
    Place { name, url: url.into(), alices: None, memory: None, suffer: None }
}

async fn compare(html: Option<&Path>) -> Outcome {
    let folder = tempfile::tempdir()?;
    let mut stories = vec![
        tokio::spawn(story(Place { memory: Some(MemoryServer::new()), ..here("memory", "") })),
        tokio::spawn(story(here("sqlite", format!("sqlite:{}", folder.path().join("locks.db").display())))),
    ];
    // Without a URL there is nothing to connect to.
    if std::env::var_os("FENCELOCK_URL").is_some() || Config::load().is_ok_and(|config| config.path().is_some()) {
        stories.push(tokio::spawn(story(here("as configured", "configured"))));
    }
    for (name, start) in servers::servers() {
        stories.push(tokio::spawn(async move {
            let place = tokio::task::spawn_blocking(start).await?.map_err(|e| format!("{name}: {e}"))?;
            story(place).await.map_err(|e| format!("{name}: {e}").into())
        }));
    }
    let (mut reports, mut failed) = (Vec::new(), 0);
    for story in stories {
        match story.await? {
            Ok(report) => reports.push(report),
            Err(e) => {
                println!("could not be compared: {e}");
                failed += 1;
            }
        }
    }
    // One after another, so that none is measured beside the others.
    for report in &mut reports {
        let micros: f64 = report.worker.ask("cost").await?.parse()?;
        report.cells.push(if micros < 1000.0 { format!("{micros} us") } else { format!("{:.1} ms", micros / 1000.0) });
    }
    println!("{}", page::table(&reports));
    println!(
        "Every ttl is {TTL:?}. Where a stale write was accepted, no lock of any kind would have helped: the data has to check the token."
    );
    if let Some(file) = html {
        std::fs::write(file, page::page(&reports))?;
        println!("Time lines: {}", file.display());
    }
    if failed == 0 { Ok(()) } else { Err(format!("{failed} engines could not be compared").into()) }
}
