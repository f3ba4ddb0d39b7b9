//! The lock is lost while the command runs.

use crate::support::{BEATS, Place, command_of, group, output, start, until};
use std::io::Write;
use std::time::{Duration, Instant};

#[test]
fn a_lock_that_was_taken_away_kills_the_command_at_once() {
    let place = Place::new();
    // A long grace, which must not be waited for.
    let mut running = start(place.run("--ttl 60s --kill-after 60s", "n", BEATS));
    let command = command_of(running.pid());
    until("beats", || place.read("log").lines().count() > 30);
    let taken = Instant::now();
    assert_eq!(output(place.fencelock(["release", "--force", "--yes", "n"])).code, Some(0));
    assert_eq!(running.code(), Some(76));
    // Long before the next renewal, which is a third of the ttl away.
    assert!(taken.elapsed() < Duration::from_secs(10), "{:?}", taken.elapsed());
    assert!(group(command).is_empty());
}

#[test]
fn a_row_that_was_deleted_by_hand_kills_the_command_too() {
    let place = Place::new();
    let mut running = start(place.run("--ttl 60s --kill-after 60s", "n", BEATS));
    let command = command_of(running.pid());
    until("beats", || place.read("log").lines().count() > 30);
    let deleted = Instant::now();
    place.sql("DELETE FROM fencelock_locks");
    assert_eq!(running.code(), Some(76));
    assert!(deleted.elapsed() < Duration::from_secs(10), "{:?}", deleted.elapsed());
    assert!(group(command).is_empty());
}

#[test]
fn success_under_a_lock_that_was_lost_is_76() {
    let place = Place::new();
    let said = output(place.run("", "n", "\"$BINARY\" release --force --yes n; exit 0"));
    assert_eq!(said.code, Some(76), "{}", said.stderr);
    assert!(said.stderr.contains("lost"), "{}", said.stderr);
}

#[test]
fn the_longest_hold_ends_with_term_once_and_then_kill() {
    let place = Place::new();
    let start = Instant::now();
    let script = "trap 'echo term >> term' TERM; while :; do sleep 0.01; done";
    let said = output(place.run("--max-hold 2s --kill-after 1500ms", "n", script));
    assert_eq!(said.code, Some(76), "{}", said.stderr);
    assert_eq!(place.read("term"), "term\n");
    let took = start.elapsed();
    assert!(took > Duration::from_millis(3_450) && took < Duration::from_secs(20), "{took:?}");
}

#[test]
fn the_longest_hold_lets_the_command_tidy_up() {
    let place = Place::new();
    let script = "trap 'echo tidy > tidy; exit 0' TERM; while :; do sleep 0.01; done";
    let said = output(place.run("--max-hold 2s --kill-after 20s", "n", script));
    assert_eq!(said.code, Some(76), "{}", said.stderr);
    assert_eq!(place.read("tidy"), "tidy\n");
}

#[test]
fn an_engine_that_is_away_at_the_end_does_not_change_the_code() {
    let place = Place::with_a_file_as_it_is();
    let mut running =
        start(place.run("--ttl 20s", "n", "touch ready; until test -e stop; do sleep 0.01; done; exit 8"));
    until("the command", || place.path("ready").exists());
    let back = place.engine_away();
    std::fs::write(place.path("stop"), "").unwrap();
    assert_eq!(running.code(), Some(8));
    back();
}

#[test]
fn nobody_who_reads_errors_is_waited_for() {
    let place = Place::new();
    // A pipe that is full already.
    let (_reader, writer) = std::io::pipe().unwrap();
    let mut filler = writer.try_clone().unwrap();
    std::thread::spawn(move || while filler.write_all(&[b'x'; 4096]).is_ok() {});
    std::thread::sleep(Duration::from_millis(100));
    let mut command = place.run("--ttl 6s --kill-after 60s", "n", BEATS);
    command.stderr(writer);
    let running = start(command);
    let command = command_of(running.pid());
    until("beats", || place.read("log").lines().count() > 30);
    let taken = Instant::now();
    assert_eq!(output(place.fencelock(["release", "--force", "--yes", "n"])).code, Some(0));
    until("the end of the group", || group(command).is_empty());
    // Long before the end of the grace.
    assert!(taken.elapsed() < Duration::from_secs(20), "{:?}", taken.elapsed());
}

#[cfg(feature = "redis")]
#[test]
fn a_deployment_that_gives_less_than_required_ends_the_command_in_good_order() {
    let redis = fencelock_lab::Redis::start_durable().unwrap();
    let url = format!("redis://{}", redis.address());
    let place = Place::at(format!("{url}?require=fenced&on_degraded=refuse&reprobe=1s"));
    let script = "trap 'touch told; sleep 1; echo tidy > tidy; exit 0' TERM; touch ready; while :; do sleep 0.01; done";
    let mut running = start(place.run("--ttl 60s --kill-after 20s", "n", script));
    until("the command", || place.path("ready").exists());
    assert!(redis.command(&["CONFIG", "SET", "appendfsync", "everysec"]).unwrap().starts_with("+OK"));
    until("it is told", || place.path("told").exists());
    // Meanwhile the lock is nobody else's.
    assert_eq!(output(Place::at(url).run("--wait 0s", "n", "exit 0")).code, Some(75));
    assert_eq!(running.code(), Some(76));
    assert_eq!(place.read("tidy"), "tidy\n");
}
