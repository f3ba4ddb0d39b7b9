//! Processes that leave the command's group but not its session, as under `timeout` in a script.

use crate::support::{Place, Running, output, signal, start, until, watchdog_of};
use std::time::Duration;

/// A script whose work is in another group than the script itself, and heeds no TERM.
const WORK: &str = "timeout --kill-after 60 60 sh -c 'trap \"\" TERM; \
    while :; do echo beat >> log; sleep 0.005; done'; echo after >> log";

fn at_work(place: &Place, options: &str) -> Running {
    let running = start(place.run(options, "n", WORK));
    until("beats", || place.read("log").lines().count() > 10);
    running
}

/// Nobody is at work any more.
fn assert_silence(place: &Place) {
    let beats = place.read("log");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(place.read("log").len(), beats.len(), "at work");
    assert!(!beats.contains("after"));
}

#[test]
fn are_killed_when_the_lock_is_taken_away() {
    let place = Place::new();
    let mut running = at_work(&place, "--ttl 60s");
    assert_eq!(output(place.fencelock(["release", "--force", "--yes", "n"])).code, Some(0));
    assert_eq!(running.code(), Some(76));
    assert_silence(&place);
}

#[test]
fn are_killed_at_the_deadline_although_the_supervisor_is_stopped() {
    let place = Place::new();
    let mut running = at_work(&place, "--ttl 4s --kill-after 300ms");
    running.signal("STOP");
    // The watchdog ends once its work is done.
    until("the next grant", || output(place.run("--no-wait", "n", "echo granted")).code == Some(0));
    assert_silence(&place);
    running.signal("CONT");
    assert_eq!(running.code(), Some(76));
}

#[test]
fn are_killed_with_the_supervisor() {
    let place = Place::new();
    let running = at_work(&place, "");
    let watchdog = watchdog_of(running.pid());
    signal("KILL", running.pid());
    until("the end of the watchdog", || crate::support::stat(watchdog).is_none());
    assert_silence(&place);
}

#[test]
fn are_waited_for() {
    let place = Place::new();
    let script = "timeout 60 sh -c 'until test -e stop; do sleep 0.01; done; echo late > late' & touch running; exit 4";
    let mut running = start(place.run("", "n", script));
    until("the command", || place.path("running").exists());
    std::thread::sleep(Duration::from_millis(400));
    assert!(place.is_held("n") && running.child.try_wait().unwrap().is_none());
    std::fs::write(place.path("stop"), "").unwrap();
    assert_eq!((running.code(), place.read("late").as_str()), (Some(4), "late\n"));
}

#[test]
fn are_told_of_signals_once() {
    let place = Place::new();
    let part = "trap \"echo told >> told; exit 0\" TERM; touch ready; while :; do sleep 0.01; done";
    let mut running = start(place.run("", "n", &format!("timeout 60 sh -c '{part}'; exit 0")));
    until("the trap", || place.path("ready").exists());
    running.signal("TERM");
    assert_eq!(running.code(), Some(143));
    assert_eq!(place.read("told"), "told\n");
}

#[test]
fn another_command_with_the_same_name_and_token_is_none() {
    let (one, other) = (Place::new(), Place::new());
    // Both are in this test's session, and each is the first to hold its lock.
    let mut first = start(one.run("--ttl 60s", "n", WORK));
    let mut second =
        start(other.run("--ttl 60s", "n", "timeout 60 sh -c 'touch ready; until test -e stop; do sleep 0.01; done'"));
    until("both", || other.path("ready").exists() && one.read("log").lines().count() > 10);
    assert_eq!(output(one.fencelock(["release", "--force", "--yes", "n"])).code, Some(0));
    assert_eq!(first.code(), Some(76));
    std::fs::write(other.path("stop"), "").unwrap();
    assert_eq!(second.code(), Some(0));
}
