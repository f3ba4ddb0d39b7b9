//! Logs of several processes, and what `fencelock audit` makes of them.

use crate::support::{Place, output, start, until};
use std::fs::{self, File};
use std::process::Command;

fn logged(place: &Place, log: &str, mut command: Command) -> crate::support::Running {
    command.stderr(File::create(place.path(log)).unwrap());
    start(command)
}

#[test]
fn two_holds_one_after_the_other_are_clean() {
    let place = Place::new();
    let script = "sleep 0.2";
    let mut one = logged(&place, "1.log", place.run("--log-format json --ttl 10s --note req-1", "orders/1", script));
    assert_eq!(one.code(), Some(0));
    let mut two = logged(&place, "2.log", place.run("--log-format json --ttl 10s --note req-2", "orders/1", script));
    assert_eq!(two.code(), Some(0));
    let said = output(place.fencelock(["audit", "1.log", "2.log", "--html", "page.html"]));
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{}", said.stdout);
    assert!(said.stdout.starts_with("2 holds of 1 names in 2 files") && said.stdout.contains("nothing is wrong"));
    assert!(place.read("page.html").contains("<svg"));

    let said = output(place.fencelock(["audit", "--advice", "--slowest", "5s", "--json", "1.log", "2.log"]));
    let report: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!((&report["holds"], &report["advice"][0]["prefix"]), (&2.into(), &"orders/".into()), "{report:#}");
    assert_eq!(report["advice"][0]["ttl_ms"], 5_500.0);
}

#[test]
fn a_lock_that_was_taken_away_is_a_double_hold_and_a_stale_release() {
    let place = Place::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _first = logged(
        &place,
        "1.log",
        place.run("--log-format json --ttl 10s", "n", "touch running; until test -e stop; do sleep 0.01; done"),
    );
    until("the holder", || place.path("running").exists());
    // Another program, which does not use the lock as one should: it clears it away.
    runtime.block_on(async {
        let client = fencelock::connect(place.url()).await.unwrap();
        assert!(client.force_release("n").await.unwrap());
    });
    let mut second = logged(&place, "2.log", place.run("--log-format json --wait 20s", "n", "true"));
    assert_eq!(second.code(), Some(0));
    until("the loss", || place.read("1.log").contains("\"event\":\"lost\""));
    // The lock stayed closed until the first was told, so that they did not overlap.
    let said = output(place.fencelock(["audit", "1.log", "2.log"]));
    assert!(!said.stdout.contains("overlap"), "{}", said.stdout);
    // Had the second been granted 10 ms before that, they would have.
    let (lost, granted) = (time_of(&place.read("1.log"), "lost"), time_of(&place.read("2.log"), "granted"));
    let at = |time: i64| format!("\"at_us\":{time},");
    let moved = place.read("2.log").replace(&at(granted), &at(lost - 10_000));
    fs::write(place.path("3.log"), moved).unwrap();
    let said = output(place.fencelock(["audit", "1.log", "3.log", "--html", "page.html"]));
    assert_eq!(said.code, Some(1), "{}{}", said.stdout, place.read("1.log"));
    assert!(said.stdout.contains("overlap: n was held by two") && said.stdout.contains("lost (revoked)"));
    assert!(place.read("page.html").contains("class=\"b\""));
}

fn time_of(log: &str, event: &str) -> i64 {
    let events = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let found = events.into_iter().find(|line| line["fields"]["event"] == event);
    found.unwrap_or_else(|| panic!("no {event} in {log}"))["fields"]["at_us"].as_i64().unwrap()
}

#[test]
fn what_is_no_log_is_told() {
    let place = Place::new();
    fs::write(place.path("empty.log"), "hello\n").unwrap();
    for args in [&["audit", "empty.log"][..], &["audit", "nowhere.log"], &["audit"]] {
        assert_eq!(output(place.fencelock(args)).code, Some(64), "{args:?}");
    }
}

/// As the guide for operators says: what is held, who it is, what its log says, and a release.
#[test]
fn from_a_stuck_lock_to_its_trace_to_a_safe_release() {
    let place = Place::new();
    let stuck = "touch running; while :; do echo beat >> log; sleep 0.01; done";
    let options = "--log-format json --holder web-3 --note req-7f3a";
    let mut holder = logged(&place, "web-3.log", place.run(options, "orders/1001", stuck));
    until("the holder", || place.path("running").exists());
    let listed = output(place.fencelock(["list", "orders/"])).stdout;
    assert!(listed.contains("web-3") && listed.contains("req-7f3a"), "{listed}");
    let status: serde_json::Value =
        serde_json::from_str(&output(place.fencelock(["status", "--json", "orders/1001"])).stdout).unwrap();
    let (token, note) = (&status["token"], status["note"].as_str().unwrap());
    let log = place.read("web-3.log");
    let granted = log.lines().find(|line| line.contains(note) && line.contains("\"event\":\"granted\"")).unwrap();
    assert!(granted.contains(&token.to_string()), "{granted}");

    let mut next = logged(
        &place,
        "web-2.log",
        place.run("--log-format json --holder web-2", "orders/1001", "echo granted >> log; sleep 0.2"),
    );
    let said = output(place.fencelock(["release", "--force", "--yes", "orders/1001"]));
    assert_eq!(said.stdout, "orders/1001: released\n");
    assert_eq!((next.code(), holder.code()), (Some(0), Some(76)));
    let beats = place.read("log");
    let after = beats.split_once("granted\n").map(|(_, after)| after);
    assert_eq!(after, Some(""), "the old command acted after the next was granted the lock");
    let said = output(place.fencelock(["audit", "web-3.log", "web-2.log"]));
    assert!(said.stdout.starts_with("2 holds") && !said.stdout.contains("overlap"), "{}", said.stdout);
}
