//! One program on every engine: what becomes of a holder that is paused, of one that
//! crashes, and of one that is cut off while the server is killed; and what an acquire costs.
//!
//! `cargo run --example compare_guarantees` compares memory, a SQLite file and, if one is
//! configured (`FENCELOCK_URL` or a file), the service of the configuration;
//! `cargo run -p fencelock-examples --features servers --example compare_guarantees -- --html page.html`
//! starts a server of every kind that this host has, and writes a page with time lines too.

#![allow(clippy::print_stdout, reason = "it is for people to read")]

use fencelock::memory::{MemoryLock, MemoryServer};
use fencelock::sql::sqlite::SqliteGate;
use fencelock::{Admission, Config, FencingToken, LockClient, LockGuard};
use fencelock_examples::Outcome;
use fencelock_examples::servers::{Fault, Harm, Server, servers};
use fencelock_examples::timeline::{Page, Scene, seconds, table};
use fencelock_examples::worker::Worker;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};

/// The same everywhere, so that what follows from it can be compared.
const TTL: Duration = Duration::from_secs(2);

const HEADS: [&str; 10] = [
    "engine",
    "level",
    "leans on",
    "paused: next after",
    "she says then",
    "stale write",
    "at a gate",
    "crashed: next after",
    "cut off, server killed",
    "acquire",
];

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

// ---- where it is played, and what is shown of it ----

/// What one engine did.
struct Report {
    name: &'static str,
    /// Why its level is no higher.
    why: String,
    /// One for each of [`HEADS`].
    cells: Vec<String>,
    scenes: Vec<Scene>,
    bob: Worker,
    _stage: Stage,
}

async fn compare(html: Option<&Path>) -> Outcome {
    let folder = tempfile::tempdir()?;
    let file = format!("sqlite:{}", folder.path().join("locks.db").display());
    let mut stories = vec![
        tokio::spawn(async { story("memory", Stage::in_memory()?).await }),
        tokio::spawn(async { story("sqlite", Stage::on(Server::there("sqlite", file))?).await }),
    ];
    // Without a URL there is nothing to connect to.
    if std::env::var_os("FENCELOCK_URL").is_some() || Config::load().is_ok_and(|config| config.path().is_some()) {
        let configured = Server::there("as configured", "configured");
        stories.push(tokio::spawn(async { story("as configured", Stage::on(configured)?).await }));
    }
    for (name, start) in servers() {
        stories.push(tokio::spawn(async move {
            let server = tokio::task::spawn_blocking(start).await?.map_err(|e| format!("{name}: {e}"))?;
            story(name, Stage::on(server)?).await.map_err(|e| format!("{name}: {e}").into())
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
        let micros: f64 = report.bob.ask("cost").await?.parse()?;
        report.cells.push(if micros < 1000.0 { format!("{micros} us") } else { format!("{:.1} ms", micros / 1000.0) });
    }
    let rows: Vec<_> =
        std::iter::once(HEADS.map(str::to_owned).to_vec()).chain(reports.iter().map(|r| r.cells.clone())).collect();
    println!("{}", table(&rows));
    println!(
        "Every ttl is {TTL:?}. Where a stale write was accepted, no lock of any kind would have helped: the data has to check the token."
    );
    if let Some(file) = html {
        std::fs::write(file, page(&reports, &rows))?;
        println!("Time lines: {}", file.display());
    }
    if failed == 0 { Ok(()) } else { Err(format!("{failed} engines could not be compared").into()) }
}

fn page(reports: &[Report], rows: &[Vec<String>]) -> String {
    let title = format!("The same program on {} engines", reports.len());
    let about = format!(
        "Alice and Bob are two processes (in memory two threads) that sell shoes under one lock, ttl {TTL:?}. Alice is \
         paused, crashes, and is cut off while the server is killed. A hold is drawn for as long as its holder, asked \
         every 2 ms, said that it held."
    );
    let mut page = Page::new(&title, &about);
    page.table(rows, |cell| match cell {
        _ if cell.contains("TWO") || cell.contains("accepted") => "bad",
        _ if cell.starts_with("refused") => "good",
        _ => "",
    });
    for report in reports {
        let cell = |at: usize| report.cells.get(at).map_or("", String::as_str);
        let leans = if cell(2) == "-" { "nothing" } else { cell(2) };
        let why = if report.why == "-" { String::new() } else { format!(" Why not more: {}.", report.why) };
        page.section(report.name, &format!("Level {}, leans on {leans}.{why}", cell(1)));
        report.scenes.iter().for_each(|scene| page.scene(scene));
    }
    page.finish()
}

/// The data, a seller at each end, and how the server is hurt.
struct Stage {
    folder: tempfile::TempDir,
    place: Place,
}

enum Place {
    Memory(MemoryServer),
    Service { url: String, fragile: String, harm: Option<Harm> },
}

impl Stage {
    fn in_memory() -> Outcome<Self> {
        Ok(Self { folder: tempfile::tempdir()?, place: Place::Memory(MemoryServer::new()) })
    }

    fn on(Server { url, fragile, harm, .. }: Server) -> Outcome<Self> {
        Ok(Self { folder: tempfile::tempdir()?, place: Place::Service { url, fragile, harm } })
    }

    fn alice(&self) -> Outcome<Worker> {
        self.seller(|fragile, _| fragile)
    }

    fn bob(&self) -> Outcome<Worker> {
        self.seller(|_, url| url)
    }

    fn seller(&self, way: fn(String, String) -> String) -> Outcome<Worker> {
        let folder = self.folder.path().to_owned();
        match &self.place {
            Place::Memory(server) => {
                let server = server.clone();
                Ok(Worker::thread(async move |commands, answers| {
                    seller(LockClient::new(Arc::new(MemoryLock::on(&server)))?, &folder, commands, answers).await
                }))
            }
            Place::Service { url, fragile, .. } => {
                let url = way(fragile.clone(), url.clone());
                Worker::process(&["worker".as_ref(), url.as_ref(), folder.as_os_str()])
            }
        }
    }
}

/// Microseconds of the wall clock, which all processes of a host share.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

// ---- the story, the same on every engine ----

const LANES: [&str; 2] = ["alice", "bob"];

/// When a seller was granted the lock that it was told to acquire.
async fn granted(worker: &mut Worker, name: &str) -> Outcome<u64> {
    let answer = worker.answer().await?;
    let (_, at) = answer.split_once(' ').ok_or_else(|| format!("{name} was not granted the lock: {answer}"))?;
    Ok(at.parse()?)
}

/// When it last believed in its hold, and what it says now.
async fn believed(worker: &mut Worker) -> Outcome<(u64, String)> {
    let answer = worker.ask("held?").await?;
    let (until, says) = answer.split_once(' ').ok_or_else(|| answer.clone())?;
    Ok((until.parse()?, says.to_owned()))
}

async fn story(name: &'static str, mut stage: Stage) -> Outcome<Report> {
    let gate = SqliteGate::open(stage.folder.path().join("data.db")).await?;
    if let Admission::Admitted(mut pass) = gate.transaction("reading", FencingToken::new(0)).await? {
        let make =
            "CREATE TABLE stock (kind TEXT, pairs INTEGER); INSERT INTO stock VALUES ('open', 10), ('gated', 10)";
        sqlx::raw_sql(make).execute(&mut *pass).await?;
        pass.commit().await?;
    }
    let (mut alice, mut bob) = (stage.alice()?, stage.bob()?);
    let described = alice.ask("level").await?;
    let described: Vec<_> = described.split('\t').map(str::to_owned).collect();
    let [level, leans, why] = <[String; 3]>::try_from(described).map_err(|told| told.join(" "))?;
    let mut cells = vec![name.to_owned(), level, leans];
    let mut scenes = vec![paused(&gate, &mut alice, &mut bob, &mut cells).await?];
    if let Place::Service { .. } = stage.place {
        scenes.push(crashed(&mut alice, &mut bob, &mut cells).await?);
        alice = stage.alice()?;
        alice.ask("level").await?;
    } else {
        cells.push("gone with it".to_owned());
    }
    if let Place::Service { harm: harm @ Some(_), .. } = &mut stage.place {
        scenes.push(cut_off(harm, &mut alice, &mut bob, &mut cells).await?);
    } else {
        cells.push("-".to_owned());
    }
    Ok(Report { name, why, cells, scenes, bob, _stage: stage })
}

/// The whole process stands still, and knows nothing of it.
async fn paused(gate: &SqliteGate, alice: &mut Worker, bob: &mut Worker, cells: &mut Vec<String>) -> Outcome<Scene> {
    alice.tell("acquire").await?;
    let from = granted(alice, "alice").await?;
    alice.ask("read").await?;
    tokio::time::sleep(TTL / 10).await;
    let paused = now();
    alice.pause().await?;
    bob.tell("acquire").await?;
    let next = granted(bob, "bob").await?;
    bob.ask("read").await?;
    bob.ask("write").await?;
    tokio::time::sleep(TTL / 10).await;
    alice.go_on().await?;
    let woken = now();
    let (until, says) = believed(alice).await?;
    let stale = alice.ask("write").await?;
    tokio::time::sleep(TTL / 20).await;
    let (bob_until, _) = believed(bob).await?;
    bob.ask("release").await?;
    alice.ask("release").await?;
    let (open, gated) = (pairs(gate, "open").await?, pairs(gate, "gated").await?);
    let lost = if open == 9 { "accepted, a sale lost" } else { "harmless" };
    cells.extend([seconds(next - paused), format!("lost: {says}"), lost.to_owned(), format!("{stale}, {gated} left")]);
    let late = format!(
        "alice goes on; asked, she says that she lost the lock ({says}); she writes all the same: {lost} without a gate, \
         {stale} by the gate"
    );
    Ok(Scene {
        title: "A holder is paused",
        lanes: LANES,
        from,
        holds: vec![(0, from, until), (1, next, bob_until)],
        faults: vec![(0, paused, woken, "paused")],
        notes: vec![
            (from, "alice acquires, and reads that there are 10 pairs".to_owned()),
            (paused, "alice is paused".to_owned()),
            (next, "bob is granted the lock, and sells a pair of each stock".to_owned()),
            (woken, late),
        ],
    })
}

/// Nothing is released.
async fn crashed(alice: &mut Worker, bob: &mut Worker, cells: &mut Vec<String>) -> Outcome<Scene> {
    alice.tell("acquire").await?;
    let from = granted(alice, "alice").await?;
    tokio::time::sleep(TTL / 10).await;
    alice.kill().await?;
    let crashed = now();
    bob.tell("acquire").await?;
    let next = granted(bob, "bob").await?;
    tokio::time::sleep(TTL / 10).await;
    let (until, _) = believed(bob).await?;
    bob.ask("release").await?;
    cells.push(seconds(next - crashed));
    Ok(Scene {
        title: "A holder crashes",
        lanes: LANES,
        from,
        holds: vec![(0, from, crashed), (1, next, until)],
        faults: vec![],
        notes: vec![
            (from, "alice acquires".to_owned()),
            (crashed, "alice is killed (SIGKILL)".to_owned()),
            (next, format!("bob is granted the lock, {} later", seconds(next - crashed))),
        ],
    })
}

/// The worst for a lock service: the holder is cut off, and the server killed and started again.
async fn cut_off(
    harm: &mut Option<Harm>,
    alice: &mut Worker,
    bob: &mut Worker,
    cells: &mut Vec<String>,
) -> Outcome<Scene> {
    alice.tell("acquire").await?;
    let from = granted(alice, "alice").await?;
    bob.tell("grab").await?;
    tokio::time::sleep(TTL / 10).await;
    let down = now();
    inflict(harm, Fault::Begins).await?;
    let up = now();
    let next = granted(bob, "bob").await?;
    tokio::time::sleep(TTL.saturating_sub(Duration::from_micros(now().saturating_sub(from)))).await;
    let ((until, says), (bob_until, _)) = (believed(alice).await?, believed(bob).await?);
    let mut notes = vec![
        (from, "alice acquires; bob asks all the time".to_owned()),
        (down, "alice is cut off, and the server killed".to_owned()),
        (up, "the server is up again, alice is not".to_owned()),
        (next, "bob is granted the lock".to_owned()),
        (until, format!("alice, who cannot reach anybody, has lost the lock: {says}")),
    ];
    notes.sort();
    let scene = Scene {
        title: "A holder is cut off, and the server is killed and started again",
        lanes: LANES,
        from,
        holds: vec![(0, from, until), (1, next, bob_until)],
        faults: vec![(0, down, bob_until, "cut off"), (1, down, up, "server down")],
        notes,
    };
    cells.push(match scene.both() {
        Some((from, to)) => format!("TWO HOLDERS for {}", seconds(to - from)),
        None => format!("{}, one holder", seconds(next - down)),
    });
    inflict(harm, Fault::Ends).await?;
    alice.ask("release").await?;
    bob.ask("release").await?;
    Ok(scene)
}

async fn inflict(harm: &mut Option<Harm>, fault: Fault) -> Outcome {
    let Some(mut way) = harm.take() else { return Ok(()) };
    *harm = Some(tokio::task::spawn_blocking(move || way(fault).map(|()| way)).await??);
    Ok(())
}

// ---- a seller of shoes, who obeys one command a line ----

/// Ends when there are no more commands.
async fn seller(
    locks: LockClient,
    folder: &Path,
    from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
) -> Outcome {
    let gate = SqliteGate::open(folder.join("data.db")).await?;
    let lock = locks.named("stock/shoes").ttl(TTL);
    let believed = Arc::new(AtomicU64::new(0));
    let (mut guard, mut read): (Option<LockGuard>, i64) = (None, 0);
    let mut commands = BufReader::new(from).lines();
    while let Some(command) = commands.next_line().await? {
        let answer = match (command.as_str(), guard.take()) {
            ("acquire", _) => {
                guard = Some(lock.acquire().await?);
                told(guard.as_ref(), &believed)
            }
            // Asks all the time, whatever the service answers.
            ("grab", _) => {
                let end = Instant::now() + TTL * 4;
                while guard.is_none() && Instant::now() < end {
                    guard = lock.try_acquire().await.ok().flatten();
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                told(guard.as_ref(), &believed)
            }
            ("read", held) => {
                guard = held;
                read = pairs(&gate, "open").await?;
                read.to_string()
            }
            // The careless way: it does not ask whether it still holds the lock.
            ("write", Some(held)) => {
                let admitted = sell(&gate, &held, read).await?;
                guard = Some(held);
                if admitted { "sold" } else { "refused" }.to_owned()
            }
            ("held?", Some(held)) => {
                let told = if held.is_held() { "yes".to_owned() } else { held.lost().await.to_string() };
                guard = Some(held);
                format!("{} {told}", believed.load(Ordering::SeqCst))
            }
            ("release", Some(held)) => held.release().await.map_or_else(|e| e.to_string(), |()| "released".to_owned()),
            ("sleep", held) => {
                guard = held;
                std::thread::sleep(TTL * 3 / 2);
                "slept".to_owned()
            }
            ("level", _) => describe(&locks),
            ("cost", _) => cost(&locks).await?.to_string(),
            (other, _) => format!("cannot {other} now"),
        };
        to.write_all(format!("{answer}\n").as_bytes()).await?;
        to.flush().await?;
    }
    locks.close().await;
    Ok(())
}

/// `TOKEN WHEN`, and from now on when the holder last believed in it is noted.
fn told(guard: Option<&LockGuard>, believed: &Arc<AtomicU64>) -> String {
    let Some(guard) = guard else { return "none".to_owned() };
    let (monitor, believed, at) = (guard.monitor(), Arc::clone(believed), now());
    believed.store(at, Ordering::SeqCst);
    tokio::spawn(async move {
        loop {
            let asked = now();
            if !monitor.is_held() {
                return;
            }
            believed.fetch_max(asked, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    format!("{} {at}", guard.token())
}

/// What is left, read without entering as anybody.
async fn pairs(gate: &SqliteGate, kind: &str) -> Outcome<i64> {
    let Admission::Admitted(mut pass) = gate.transaction("reading", FencingToken::new(0)).await? else {
        return Err("nobody enters `reading` with a token".into());
    };
    let query = sqlx::query_as("SELECT pairs FROM stock WHERE kind = ?").bind(kind);
    Ok(query.fetch_one(&mut *pass).await.map(|(pairs,)| pairs)?)
}

/// One pair from each of two stocks: with and without a gate. Whether the gate let it through.
async fn sell(gate: &SqliteGate, guard: &LockGuard, read: i64) -> Outcome<bool> {
    if let Admission::Admitted(mut pass) = gate.transaction("reading", FencingToken::new(0)).await? {
        sqlx::query("UPDATE stock SET pairs = ? WHERE kind = 'open'").bind(read - 1).execute(&mut *pass).await?;
        pass.commit().await?;
    }
    let Admission::Admitted(mut pass) = gate.transaction("stock/shoes", guard.token()).await? else { return Ok(false) };
    sqlx::query("UPDATE stock SET pairs = pairs - 1 WHERE kind = 'gated'").execute(&mut *pass).await?;
    pass.commit().await?;
    Ok(true)
}

fn describe(locks: &LockClient) -> String {
    let found = locks.guarantees();
    let leans: Vec<_> = found.assumptions().map(|assumption| assumption.id()).collect();
    let why = found.next_obstacle().map_or("-", |rule| rule.reason());
    let level = found.level().map_or("none", |level| level.as_str());
    format!("{level}\t{}\t{why}", if leans.is_empty() { "-".to_owned() } else { leans.join(" ") })
}

/// The median of what an acquire of a free lock takes, in microseconds.
async fn cost(locks: &LockClient) -> Outcome<u128> {
    let lock = locks.named("cost").ttl(TTL);
    let mut took = Vec::new();
    for _ in 0..101 {
        let start = Instant::now();
        let guard = lock.acquire().await?;
        took.push(start.elapsed().as_micros());
        guard.release().await?;
    }
    took.sort_unstable();
    Ok(took.get(50).copied().unwrap_or_default())
}
