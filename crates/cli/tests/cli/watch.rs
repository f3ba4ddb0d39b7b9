//! `fencelock watch` in a real terminal, read by a terminal's own rules.

use crate::support::{BINARY, LIMIT, Place, output};
use fencelock::LockGuard;
use pty_process::blocking::{Command, Pty, open};
use std::io::{Read, Write};
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

struct Terminal {
    keyboard: Pty,
    drawn: Arc<Mutex<vt100::Parser>>,
    child: Child,
}

impl Terminal {
    fn start(place: &Place, columns: u16, lines: u16, args: &[&str]) -> Self {
        let (pty, pts) = open().unwrap();
        pty.resize(pty_process::Size::new(lines, columns)).unwrap();
        let mut command = Command::new(BINARY);
        for (name, value) in place.variables() {
            command = command.env(name, value);
        }
        let child = command.args(["watch"]).args(args).current_dir(place.path("")).spawn(pts).unwrap();
        let drawn = Arc::new(Mutex::new(vt100::Parser::new(lines, columns, 0)));
        let shown = Arc::clone(&drawn);
        let mut display: std::fs::File = std::os::fd::AsFd::as_fd(&pty).try_clone_to_owned().unwrap().into();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = display.read(&mut buffer) {
                shown.lock().unwrap().process(&buffer[..n]);
            }
        });
        Self { keyboard: pty, drawn, child }
    }

    fn text(&self) -> String {
        self.drawn.lock().unwrap().screen().contents()
    }

    fn expect(&self, text: &str) -> Vec<String> {
        let begin = Instant::now();
        while !self.text().contains(text) {
            assert!(begin.elapsed() < LIMIT, "no `{text}` in:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(10));
        }
        // It may have been read in the middle of a picture, whose last line says what quits.
        loop {
            let drawn = self.text();
            std::thread::sleep(Duration::from_millis(100));
            if drawn.contains("q quits") && drawn.contains(text) && drawn == self.text() {
                return drawn.lines().map(str::to_owned).collect();
            }
            assert!(begin.elapsed() < LIMIT, "no end of `{text}` in:\n{}", self.text());
        }
    }

    fn keys(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Quits, and the terminal is as it was.
    fn quit(mut self) {
        self.keys("q");
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begin.elapsed() < LIMIT, "it does not quit:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(10));
        };
        assert_eq!(status.code(), Some(0));
        let begin = Instant::now();
        while self.drawn.lock().unwrap().screen().alternate_screen() {
            assert!(begin.elapsed() < LIMIT, "the other screen is left");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(!self.drawn.lock().unwrap().screen().hide_cursor());
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const SCRIPTS: [&str; 3] = ["注文/東京", "заказы/1001", "größe/1"];

/// Holds so many locks, a few of them named in other scripts.
async fn hold(place: &Place, number: usize) -> Vec<LockGuard> {
    let client = fencelock::builder(place.url()).holder("somebody").connect().await.unwrap();
    let mut guards = Vec::new();
    for at in 0..number {
        let name = SCRIPTS.get(at).map_or_else(|| format!("orders/{at:03}"), |name| (*name).to_owned());
        guards.push(client.named(&name).ttl(Duration::from_secs(120)).note("req-7").acquire().await.unwrap());
    }
    guards
}

#[test]
fn it_fits_in_small_and_large_terminals_with_none_few_and_many_locks() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for number in [0, 3, 500] {
        let place = Place::new();
        let guards = runtime.block_on(hold(&place, number));
        for (columns, lines) in [(80, 24), (200, 50)] {
            let mut terminal = Terminal::start(&place, columns, lines, &[]);
            let drawn = terminal.expect(&format!("{number} held"));
            assert!(drawn[1].contains("NAME") && drawn[1].contains("FOR"), "{drawn:?}");
            // Nobody queues in a SQLite file, and what is not known is said.
            assert_eq!(number > 0, drawn[0].ends_with("who waits is not known by this engine"), "{drawn:?}");
            assert!(terminal.text().contains("q quits"), "{drawn:?}");
            match number {
                0 => assert_eq!(drawn[2], "nothing is held"),
                3 => {
                    let at = |name: &str| {
                        drawn.iter().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{drawn:?}"))
                    };
                    for name in SCRIPTS {
                        assert!(at(name).contains("somebody") && at(name).contains("req-7"), "{drawn:?}");
                    }
                    assert_eq!(columns == 200, drawn[1].contains("TOKEN"));
                }
                _ => {
                    let room = usize::from(lines) - 3;
                    assert!(drawn[usize::from(lines) - 1].starts_with(&format!("1-{room} of 500")), "{drawn:?}");
                    terminal.keys(" ");
                    terminal.expect(&format!("{}-{} of 500", room + 1, 2 * room));
                }
            }
            terminal.quit();
        }
        drop(guards);
    }
}

/// On an engine with a queue: who holds, who waits, each for how long.
#[cfg(feature = "etcd")]
#[test]
fn it_shows_who_waits_and_for_how_long() {
    let etcd = fencelock_lab::Etcd::start().unwrap();
    let place = Place::at(format!("etcd://{}", etcd.endpoint(0).unwrap()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (guards, waiting) = runtime.block_on(async {
        let guards = hold(&place, 3).await;
        let mut waiting = Vec::new();
        for at in 0..2 {
            let client = fencelock::builder(place.url()).holder(format!("ждёт-{at}")).connect().await.unwrap();
            let lock = client.named(SCRIPTS[0]).note("注文-7").wait_forever();
            waiting.push(tokio::spawn(async move { lock.acquire().await.map(drop) }));
            while client.inspect(SCRIPTS[0]).await.unwrap().unwrap().waiters != Some(at + 1) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        (guards, waiting)
    });
    for (columns, lines) in [(80, 24), (200, 50)] {
        let terminal = Terminal::start(&place, columns, lines, &[]);
        let drawn = terminal.expect("3 held, 2 waiting");
        for (line, parts) in [
            (2, [SCRIPTS[0], "somebody", "≤", "req-7"]),
            (3, ["  1 waits", "ждёт-0", "s", "注文-7"]),
            (4, ["  2 waits", "ждёт-1", "s", "注文-7"]),
        ] {
            assert!(parts.iter().all(|part| drawn[line].contains(part)), "{drawn:?}");
        }
        terminal.quit();
    }
    let said = output(place.fencelock(["status", SCRIPTS[0]])).stdout;
    for part in ["at the earliest", "waiters    2", "1. ждёт-0, for ", ", note 注文-7, claim "] {
        assert!(said.contains(part), "{said}");
    }
    let listed: serde_json::Value =
        serde_json::from_str(&output(place.fencelock(["list", "--json", SCRIPTS[0]])).stdout).unwrap();
    assert_eq!((&listed[0]["waiting"][1]["holder"], &listed[0]["waiters"]), (&"ждёт-1".into(), &2.into()), "{listed}");
    assert!(listed[0]["waiting"][0]["waited_for_ms"].as_u64().is_some_and(|ms| ms >= 900), "{listed}");
    assert!(listed[0]["asked_ago_ms"].is_u64() && listed[0]["held_for_ms"].is_null(), "{listed}");
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    runtime.block_on(async { drop(guards) });
}

#[test]
fn it_follows_what_happens_and_the_terminals_size() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let place = Place::new();
    let terminal = Terminal::start(&place, 80, 24, &["--interval", "100ms", "ord"]);
    terminal.expect("watch ord: 0 held");
    let guards = runtime.block_on(hold(&place, 5));
    terminal.expect("watch ord: 2 held");
    terminal.drawn.lock().unwrap().screen_mut().set_size(10, 40);
    terminal.keyboard.resize(pty_process::Size::new(10, 40)).unwrap();
    let begin = Instant::now();
    while !terminal.text().lines().nth(9).is_some_and(|line| line.starts_with("q quits")) {
        assert!(begin.elapsed() < LIMIT, "not redrawn:\n{}", terminal.text());
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(guards);
    terminal.quit();
}

#[test]
fn without_a_terminal_it_says_what_to_use() {
    let said = output(Place::new().fencelock(["watch"]));
    assert_eq!(said.code, Some(64));
    assert!(said.stderr.contains("list"), "{}", said.stderr);
}
