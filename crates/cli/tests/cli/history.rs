//! What the command's processes did and when another was granted the lock, in one history.

use crate::support::{LIMIT, Place, Running, command_of, group, output, start, until};
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

/// Four processes that write who they are and when, every few milliseconds: the
/// command, its child, its grandchild, and one whose parent has gone. None heeds TERM.
const HEARTS: &str = "\
    trap '' TERM; \
    beat() { while :; do read up rest < /proc/uptime; echo \"$1 $up\" >> log; sleep 0.005; done; }; \
    beat child & (beat grandchild & wait) & (beat orphan &) ; beat command";
const WHO: [&str; 4] = ["command", "child", "grandchild", "orphan"];

/// The system's monotonic clock, which the processes write too; it has hundredths of a second.
fn now() -> String {
    fs::read_to_string("/proc/uptime").unwrap().split(' ').next().unwrap().to_owned()
}

fn hundredths(stamp: &str) -> u64 {
    stamp.replace('.', "").parse().unwrap()
}

/// Both holders of one lock.
struct Both {
    log: PathBuf,
    first: Running,
    /// The first one's process group.
    group: i32,
    next: JoinHandle<Vec<i32>>,
}

impl Both {
    /// The first holds, all its processes are at work, and the next one waits.
    fn start(place: &Place, options: &str) -> Self {
        Self::with_next_at(place, options, place.url())
    }

    /// The next one asks at another address.
    fn with_next_at(place: &Place, options: &str, url: String) -> Self {
        let first = start(place.run(options, "n", HEARTS));
        let group = command_of(first.pid());
        let at_work = |who: &&str| place.read("log").lines().filter(|line| line.starts_with(who)).count() > 10;
        until("all processes", || WHO.iter().all(at_work));
        let next = next(place, url, group);
        std::thread::sleep(Duration::from_millis(300));
        Self { log: place.path("log"), first, group, next }
    }

    /// Waits for the next grant. No process of the first acted after it, or was
    /// alive at it; how long before it the last act was.
    fn assert_gone_before_the_grant(self) -> Duration {
        assert_eq!(self.next.join().unwrap(), Vec::<i32>::new(), "alive at the grant");
        let log = fs::read_to_string(self.log).unwrap();
        let mut lines = log.lines().map(|line| line.split_once(' ').unwrap());
        let mut last = 0;
        let granted = loop {
            match lines.next().expect("a grant") {
                ("next", stamp) => break hundredths(stamp),
                (_, stamp) => last = last.max(hundredths(stamp)),
            }
        };
        // A stamp may be a hundredth older than it says.
        assert!(last < granted, "acted at {last} and granted at {granted}, in hundredths of a second");
        assert_eq!(lines.collect::<Vec<_>>(), [], "acted after the grant");
        Duration::from_millis((granted - last) * 10)
    }
}

/// The next holder: the processes of the first that are alive when it is granted the lock.
fn next(place: &Place, url: String, of: i32) -> JoinHandle<Vec<i32>> {
    let log = place.path("log");
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = fencelock::connect(&url).await.unwrap();
            // Asks all the time, and so is granted as early as can be.
            let guard = tokio::time::timeout(LIMIT, async {
                loop {
                    if let Some(guard) = client.try_acquire("n").await.ok().flatten() {
                        return guard;
                    }
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            });
            let guard = guard.await.unwrap();
            let (granted, alive) = (now(), group(of));
            writeln!(File::options().append(true).open(log).unwrap(), "next {granted}").unwrap();
            tokio::time::sleep(Duration::from_millis(300)).await;
            guard.release().await.unwrap();
            alive
        })
    })
}

/// An operator takes the lock away from the command.
pub(crate) fn stolen_from(place: &Place, options: &str) {
    let mut both = Both::start(place, options);
    let said = output(place.fencelock(["release", "--force", "--yes", "n"]));
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), "n: released\n"), "{}", said.stderr);
    assert_eq!(both.first.code(), Some(76), "{options}");
    assert!(!both.assert_gone_before_the_grant().is_zero());
}

/// The first is cut off, while the next asks all the time.
#[cfg(feature = "redis")]
pub(crate) fn cut_off(place: &Place, url: String, cut: impl FnOnce()) {
    let mut both = Both::with_next_at(place, "--ttl 1500ms --kill-after 300ms", url);
    cut();
    assert_eq!(both.first.code(), Some(76));
    both.assert_gone_before_the_grant();
}

#[test]
fn stolen() {
    // Neither a ttl that would end anyway nor a grace helps here. How long it takes
    // until the holder hears of it is a matter of chance.
    for options in ["--ttl 60s --kill-after 0s"; 2] {
        stolen_from(&Place::new(), options);
    }
    stolen_from(&Place::new(), "--ttl 60s");
}

/// The holder hears of it as late as is allowed for, not as early as chance will have it.
#[test]
fn stolen_from_one_that_is_slow_to_hear() {
    let place = Place::new();
    let mut both = Both::start(&place, "--ttl 60s --kill-after 0s");
    both.first.signal("STOP");
    let said = output(place.fencelock(["release", "--force", "--yes", "n"]));
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    std::thread::sleep(Duration::from_millis(600));
    both.first.signal("CONT");
    assert_eq!(both.first.code(), Some(76));
    both.assert_gone_before_the_grant();
}

#[test]
fn the_engine_is_away_past_the_deadline() {
    let place = Place::new();
    let mut both = Both::start(&place, "--ttl 1500ms --kill-after 300ms");
    let back = place.engine_away();
    assert_eq!(both.first.code(), Some(76));
    assert!(group(both.group).is_empty(), "gone although nobody could be asked");
    back();
    both.assert_gone_before_the_grant();
}

#[test]
fn stopped_past_its_ttl_and_continued() {
    let place = Place::new();
    let mut both = Both::start(&place, "--ttl 1s --kill-after 300ms");
    both.first.signal("STOP");
    until("the next grant", || place.read("log").contains("next"));
    both.first.signal("CONT");
    assert_eq!(both.first.code(), Some(76));
    both.assert_gone_before_the_grant();
}

#[test]
fn killed() {
    let place = Place::new();
    let both = Both::start(&place, "--ttl 1s --kill-after 300ms");
    both.first.signal("KILL");
    let killed = std::time::Instant::now();
    until("the end of the group", || group(both.group).is_empty());
    assert!(killed.elapsed() < Duration::from_secs(1), "{:?}", killed.elapsed());
    both.assert_gone_before_the_grant();
}
