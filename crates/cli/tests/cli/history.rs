//! What the command's processes did and when another was granted the lock, in one history.

use crate::support::{LIMIT, Place, Running, command_of, group, output, start, until};
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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
        self.gone_before_the_grant().unwrap()
    }

    fn gone_before_the_grant(self) -> Result<Duration, String> {
        let alive = self.next.join().unwrap();
        if !alive.is_empty() {
            return Err(format!("alive at the grant: {alive:?}"));
        }
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
        if last >= granted {
            return Err(format!("acted at {last} and granted at {granted}, in hundredths of a second"));
        }
        match lines.next() {
            Some(line) => Err(format!("acted after the grant: {line:?}")),
            None => Ok(Duration::from_millis((granted - last) * 10)),
        }
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

/// The longest that the machine stood still, as a thread sees it that wants to run every few milliseconds.
struct Stalls(Arc<AtomicU64>, Arc<AtomicBool>);

impl Stalls {
    fn watch() -> Self {
        let stalls = Self(Arc::default(), Arc::default());
        let (longest, over) = (Arc::clone(&stalls.0), Arc::clone(&stalls.1));
        std::thread::spawn(move || {
            while !over.load(Ordering::SeqCst) {
                let slept = Instant::now();
                std::thread::sleep(Duration::from_millis(5));
                longest.fetch_max(u64::try_from(slept.elapsed().as_millis()).unwrap(), Ordering::SeqCst);
            }
        });
        stalls
    }
}

impl Drop for Stalls {
    fn drop(&mut self) {
        self.1.store(true, Ordering::SeqCst);
    }
}

/// An operator takes the lock away from the command. What the holder is allowed until it hears of that is as good as
/// the machine: where it stood still meanwhile nothing is shown, and it is tried again.
pub(crate) fn stolen_from(place: &Place, options: &str) {
    for attempt in 1.. {
        let stalls = Stalls::watch();
        let mut both = Both::start(place, options);
        let said = output(place.fencelock(["release", "--force", "--yes", "n"]));
        assert_eq!((said.code, said.stdout.as_str()), (Some(0), "n: released\n"), "{}", said.stderr);
        assert_eq!(both.first.code(), Some(76), "{options}");
        match both.gone_before_the_grant() {
            Ok(before) => return assert!(!before.is_zero()),
            Err(found) => {
                let stood_still = stalls.0.load(Ordering::SeqCst);
                let again = stood_still > 250 && attempt < 4;
                assert!(again, "{found}; the machine stood still for {stood_still} ms at most");
            }
        }
        fs::remove_file(place.path("log")).unwrap();
    }
}

/// The first is cut off, while the next asks all the time.
#[cfg(feature = "redis")]
pub(crate) fn cut_off(place: &Place, url: String, cut: impl FnOnce()) {
    let mut both = Both::with_next_at(place, "--ttl 4s --kill-after 300ms", url);
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
    std::thread::sleep(Duration::from_millis(400));
    both.first.signal("CONT");
    assert_eq!(both.first.code(), Some(76));
    both.assert_gone_before_the_grant();
}

#[test]
fn the_engine_is_away_past_the_deadline() {
    let place = Place::with_a_file_as_it_is();
    let mut both = Both::start(&place, "--ttl 4s --kill-after 300ms");
    let back = place.engine_away();
    assert_eq!(both.first.code(), Some(76));
    assert!(group(both.group).is_empty(), "gone although nobody could be asked");
    back();
    both.assert_gone_before_the_grant();
}

#[test]
fn stopped_past_its_ttl_and_continued() {
    let place = Place::new();
    let mut both = Both::start(&place, "--ttl 4s --kill-after 300ms");
    both.first.signal("STOP");
    until("the next grant", || place.read("log").contains("next"));
    both.first.signal("CONT");
    assert_eq!(both.first.code(), Some(76));
    both.assert_gone_before_the_grant();
}

#[test]
fn killed() {
    let place = Place::new();
    let both = Both::start(&place, "--ttl 9s --kill-after 300ms");
    both.first.signal("KILL");
    let killed = Instant::now();
    until("the end of the group", || group(both.group).is_empty());
    // Long before the deadline.
    assert!(killed.elapsed() < Duration::from_secs(5), "{:?}", killed.elapsed());
    both.assert_gone_before_the_grant();
}
