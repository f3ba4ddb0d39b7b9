//! What happens to the command when something happens to its supervisor or its watchdog.

use crate::support::{BEATS, Place, command_of, group, signal, start, stat, until, watchdog_of};
use std::time::Duration;

#[test]
fn killed_while_the_watchdog_is_stopped_takes_the_command_along() {
    let place = Place::new();
    let supervisor = start(place.run("", "n", "exec sleep 60"));
    let (command, watchdog) = (command_of(supervisor.pid()), watchdog_of(supervisor.pid()));
    signal("STOP", watchdog);
    supervisor.signal("KILL");
    until("the end of the command", || stat(command).is_none());
    signal("CONT", watchdog);
    until("the end of the watchdog", || stat(watchdog).is_none());
}

#[test]
fn stopped_for_a_short_time_changes_nothing() {
    let place = Place::new();
    let mut supervisor =
        start(place.run("--ttl 15s", "n", "touch ready; until test -e stop; do sleep 0.01; done; exit 5"));
    until("the command", || place.path("ready").exists());
    supervisor.signal("STOP");
    std::thread::sleep(Duration::from_millis(500));
    supervisor.signal("CONT");
    std::fs::write(place.path("stop"), "").unwrap();
    assert_eq!(supervisor.code(), Some(5));
}

#[test]
fn a_watchdog_that_was_killed_is_replaced() {
    let place = Place::new();
    let supervisor = start(place.run("", "n", BEATS));
    let command = command_of(supervisor.pid());
    let first = watchdog_of(supervisor.pid());
    signal("KILL", first);
    let mut second = first;
    until("another watchdog", || {
        second = watchdog_of(supervisor.pid());
        second != first
    });
    supervisor.signal("KILL");
    until("the end of the group", || group(command).is_empty());
}

#[test]
fn a_watchdog_that_is_stopped_swallows_no_term() {
    let place = Place::new();
    let script = "trap 'echo term >> term' TERM; touch ready; while :; do sleep 0.01; done";
    let mut supervisor = start(place.run("--max-hold 4s --kill-after 2s", "n", script));
    until("the command", || place.path("ready").exists());
    let watchdog = watchdog_of(supervisor.pid());
    signal("STOP", watchdog);
    assert_eq!(supervisor.code(), Some(76));
    assert_eq!(place.read("term"), "term\n");
}

#[test]
fn a_supervisor_that_is_stopped_swallows_no_term() {
    let place = Place::new();
    let script = "trap 'echo term >> term' TERM; touch ready; while :; do sleep 0.01; done";
    let mut command = place.run("--ttl 3s --kill-after 1500ms", "n", script);
    command.stderr(std::process::Stdio::piped());
    let mut supervisor = start(command);
    until("the command", || place.path("ready").exists());
    supervisor.signal("STOP");
    // Past the deadline and the grace.
    std::thread::sleep(Duration::from_millis(5_000));
    supervisor.signal("CONT");
    assert_eq!(supervisor.code(), Some(76));
    assert_eq!(place.read("term"), "term\n");
    let said = std::io::read_to_string(supervisor.child.stderr.take().unwrap()).unwrap();
    assert!(said.contains("lost") && !said.contains("watchdog"), "{said}");
}

#[test]
fn the_watchdog_has_another_name() {
    let place = Place::new();
    let supervisor = start(place.run("", "n", "exec sleep 60"));
    let watchdog = watchdog_of(supervisor.pid());
    for file in ["comm", "cmdline"] {
        let shown = std::fs::read_to_string(format!("/proc/{watchdog}/{file}")).unwrap();
        assert!(!shown.contains("fencelock"), "{shown}");
    }
}

#[test]
fn nothing_is_left_at_the_end() {
    let place = Place::new();
    let mut supervisor = start(place.run("", "n", "touch ready; until test -e stop; do sleep 0.01; done"));
    until("the command", || place.path("ready").exists());
    let watchdog = watchdog_of(supervisor.pid());
    std::fs::write(place.path("stop"), "").unwrap();
    assert_eq!(supervisor.code(), Some(0));
    assert!(stat(watchdog).is_none());
}
