//! The shape of what `--json` answers.

use crate::support::{Place, output, start, until};
use serde_json::Value;

fn json(place: &Place, args: &[&str], code: i32) -> Value {
    let said = output(place.fencelock(args));
    assert_eq!(said.code, Some(code), "{args:?}: {}", said.stderr);
    serde_json::from_str(&said.stdout).unwrap()
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn of_check() {
    let place = Place::new();
    for (require, code) in [("fenced", 0), ("replicated", 79)] {
        let all = json(&place, &["check", "--json", "--require", require], code);
        // Others may be added, and none of these may go.
        for key in ["engine", "deployment", "level", "assumptions", "capabilities", "rules"] {
            assert!(keys(&all).contains(&key), "{key}: {all}");
        }
        assert_eq!((&all["engine"], &all["level"]), (&"sqlite".into(), &"fenced".into()));
        assert!(all["assumptions"].as_array().unwrap().contains(&"T4".into()), "{all}");
        assert!(all["capabilities"].is_array());
        let rules = all["rules"].as_array().unwrap();
        assert!(rules.len() > 3);
        for rule in rules {
            for key in ["rule", "outcome", "reason", "fix"] {
                assert!(keys(rule).contains(&key), "{key}: {rule}");
            }
            let outcome = rule["outcome"].as_str().unwrap();
            assert!(["proved", "attested", "assumed", "refused", "unknown"].contains(&outcome), "{rule}");
            assert!(rule["fix"].is_string() || outcome != "refused", "{rule}");
        }
    }
}

#[test]
fn of_status_and_list() {
    let place = Place::new();
    let free = json(&place, &["status", "--json", "a"], 0);
    assert_eq!(free, serde_json::json!({ "name": "a", "held": false }));
    assert_eq!(json(&place, &["list", "--json"], 0), serde_json::json!([]));
    let script = "touch running; until test -e stop; do sleep 0.01; done";
    let mut holder = start(place.run("--holder me --note why", "a", script));
    until("the holder", || place.path("running").exists());
    let held = json(&place, &["status", "--json", "a"], 0);
    let all = [
        "asked_ago_ms",
        "asked_at",
        "claim",
        "held",
        "held_for_ms",
        "holder",
        "name",
        "note",
        "remaining_ms",
        "since",
        "token",
        "waiters",
        "waiting",
    ];
    assert_eq!(keys(&held), all);
    assert_eq!((&held["held"], &held["holder"], &held["note"]), (&true.into(), &"me".into(), &"why".into()));
    assert!(held["token"].is_u64() && held["remaining_ms"].as_u64().unwrap() > 10_000, "{held}");
    assert!(held["held_for_ms"].is_u64() && held["since"].as_str().unwrap().ends_with('Z'), "{held}");
    let listed = json(&place, &["list", "--json", "a"], 0);
    assert_eq!(listed.as_array().unwrap().len(), 1);
    assert_eq!((keys(&listed[0]), &listed[0]["token"]), (all.to_vec(), &held["token"]));
    std::fs::write(place.path("stop"), "").unwrap();
    assert_eq!(holder.code(), Some(0));
}

#[test]
fn of_guarantees() {
    let table = json(&Place::new(), &["guarantees", "--json"], 0);
    for row in table.as_array().unwrap() {
        for key in ["engine", "deployment"] {
            assert!(row[key].is_string(), "{row}");
        }
        // Null where not even `advisory` is given.
        let rules = row["rules"].as_array().unwrap();
        let none = rules.iter().any(|rule| rule["level"] == "advisory" && rule["outcome"] == "refused");
        assert_eq!(row["level"].is_null(), none, "{row}");
        assert!(none || row["level"].is_string(), "{row}");
        assert!(row["capabilities"].is_array() && row["assumptions"].is_array(), "{row}");
    }
}
