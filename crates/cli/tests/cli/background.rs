//! A command that leaves processes behind.

use crate::support::{Place, output, start, until};
use std::time::{Duration, Instant};

#[test]
fn the_lock_is_held_until_the_whole_group_has_ended() {
    let place = Place::new();
    let script = "(until test -e stop; do sleep 0.01; done; echo late > late) & touch running; exit 4";
    let mut running = start(place.run("", "n", script));
    until("the command", || place.path("running").exists());
    std::thread::sleep(Duration::from_millis(500));
    assert!(running.child.try_wait().unwrap().is_none(), "a process of the group lives");
    assert!(place.is_held("n"));
    std::fs::write(place.path("stop"), "").unwrap();
    assert_eq!(running.code(), Some(4));
    assert_eq!(place.read("late"), "late\n");
    assert!(!place.is_held("n"));
}

#[test]
fn a_chain_of_orphans_is_waited_for() {
    let place = Place::new();
    // Each starts the next and ends, so that no parent is left to wait for any of them.
    let script =
        "next() { if test $1 -gt 0; then (sleep 0.05; next $(($1 - 1))) & else echo last > last; fi; }; next 10";
    assert_eq!(output(place.run("", "n", script)).code, Some(0));
    assert_eq!(place.read("last"), "last\n");
}

#[test]
fn what_left_the_group_is_not_waited_for() {
    let place = Place::new();
    let start = Instant::now();
    let said = output(place.run("", "n", "setsid sleep 20 > /dev/null 2>&1 & sleep 0.1"));
    assert_eq!(said.code, Some(0));
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
}

#[test]
fn orphans_are_reaped_while_the_command_waits_for_others() {
    let place = Place::new();
    // The command itself ends first; what it left goes on making orphans.
    let part = "for i in 1 2 3 4 5 6 7 8 9; do (sleep 0.01 &); done; touch made; exec sleep 5";
    let mut running = start(place.run("", "n", &format!("setsid sh -c '{part}' & sleep 60 & exit 0")));
    until("orphans", || place.path("made").exists());
    until("few dead children", || dead_children(running.pid()) <= 1);
    running.signal("TERM");
    assert_eq!(running.code(), Some(0));
}

/// Those that nobody has reaped; the command itself is one.
fn dead_children(parent: i32) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let stats = entries.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    stats
        .filter(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(&format!("Z {parent} "))))
        .count()
}
