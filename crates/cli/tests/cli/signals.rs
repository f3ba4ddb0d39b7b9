//! Signals to the supervisor.

use crate::support::{Place, command_of, is_stopped, start, until};
use std::os::unix::process::ExitStatusExt;

#[test]
fn signals_are_passed_on() {
    let place = Place::new();
    for name in ["INT", "TERM", "HUP", "QUIT", "USR1", "USR2"] {
        let ready = place.path(name);
        let script = format!("trap 'exit 7' {name}; touch {name}; while :; do sleep 0.01; done");
        let mut running = start(place.run("", "n", &script));
        until("the trap", || ready.exists());
        running.signal(name);
        assert_eq!(running.code(), Some(7), "{name}");
    }
}

#[test]
fn signals_reach_the_whole_group() {
    let place = Place::new();
    let part = "trap 'echo told >> told; exit 0' TERM; echo ready >> ready; while :; do sleep 0.01; done";
    let script =
        format!("({part}) & ({part}) & trap 'wait; exit 0' TERM; echo ready >> ready; while :; do sleep 0.01; done");
    let mut running = start(place.run("", "n", &script));
    until("three processes", || place.read("ready").lines().count() == 3);
    running.signal("TERM");
    assert_eq!(running.code(), Some(0));
    assert_eq!(place.read("told").lines().count(), 2);
}

#[test]
fn a_stop_and_a_continue_reach_the_command() {
    let place = Place::new();
    let mut running = start(place.run("", "n", "while :; do echo beat >> log; sleep 0.005; done"));
    until("beats", || place.read("log").lines().count() > 10);
    let command = command_of(running.pid());
    // As the terminal and a shell do it: stopped together, and continued.
    running.signal("TSTP");
    until("the stop", || is_stopped(command));
    let beats = place.read("log").lines().count();
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert_eq!(place.read("log").lines().count(), beats, "stopped");
    running.signal("CONT");
    until("more beats", || place.read("log").lines().count() > beats);
    running.signal("TERM");
    assert_eq!(running.code(), Some(143));
}

#[test]
fn a_command_that_dies_of_a_signal_that_was_passed_on() {
    let place = Place::new();
    let mut running = start(place.run("", "n", "touch ready; sleep 30; true"));
    until("the command", || place.path("ready").exists());
    running.signal("TERM");
    assert_eq!(running.code(), Some(143));
    assert!(!place.is_held("n"));
}

#[test]
fn what_whoever_started_us_ignores_stays_ignored() {
    let place = Place::new();
    let mut command = place.program("sh");
    let script =
        "trap '' HUP; exec \"$BINARY\" run n -- sh -c 'touch ready; until test -e stop; do sleep 0.01; done; exit 6'";
    command.args(["-c", script]);
    let mut running = start(command);
    until("the command", || place.path("ready").exists());
    running.signal("HUP");
    std::thread::sleep(std::time::Duration::from_millis(200));
    std::fs::write(place.path("stop"), "").unwrap();
    assert_eq!(running.code(), Some(6));
}

#[test]
fn a_signal_ends_a_wait_and_leaves_nothing_behind() {
    let place = Place::new();
    let mut holder = start(place.run("", "n", "touch running; until test -e stop; do sleep 0.01; done"));
    until("the holder", || place.path("running").exists());
    // INT is died of, so that a script stops too; the others have the usual code.
    for (name, code, signal) in [("INT", None, Some(2)), ("TERM", Some(143), None), ("HUP", Some(129), None)] {
        let mut waiter = place.run("--wait forever", "n", "echo ran > ran");
        let log = format!("{name}.log");
        waiter.env("FENCELOCK_LOG", "debug").stderr(std::fs::File::create(place.path(&log)).unwrap());
        let mut waiter = start(waiter);
        until("the wait", || place.read(&log).contains("contended"));
        let sent = std::time::Instant::now();
        waiter.signal(name);
        let end = waiter.end();
        assert_eq!((end.code(), end.signal()), (code, signal), "{name}");
        assert!(sent.elapsed() < std::time::Duration::from_secs(10), "{:?}", sent.elapsed());
    }
    std::fs::write(place.path("stop"), "").unwrap();
    assert_eq!(holder.code(), Some(0));
    assert!(!place.is_held("n"));
    assert_eq!(place.read("ran"), "");
}
