#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use super::judge::{Finding, judge};
use super::read::{Logs, shown, time};
use super::{advice, html, report};
use std::time::Duration;

/// Event lines of one process; each a time in ms, the event, name, claim and token, and more fields.
fn log(lines: &[(i64, &str, &str, &str, u64, &str)]) -> String {
    let line = |(ms, event, name, claim, token, more): &(i64, &str, &str, &str, u64, &str)| {
        let name = serde_json::Value::from(*name);
        format!(
            r#"{{"timestamp":"{}","level":"DEBUG","fields":{{"event":"{event}","engine":"e","name":{name},"claim":"{claim}","token":{token},"holder":"h-{claim}"{more}}},"target":"fencelock"}}"#,
            shown(1_700_000_000_000_000 + ms * 1_000)
        ) + "\n"
    };
    lines.iter().map(line).collect()
}

fn logs(files: &[String]) -> Logs {
    let mut logs = Logs::default();
    for (at, file) in files.iter().enumerate() {
        logs.read_from(&format!("{at}.log"), file.as_bytes()).unwrap();
    }
    logs
}

const TOOK_2: &str = r#","took_us":2000,"held_us":8000"#;

#[test]
fn clean_logs_are_clean_even_if_an_answer_came_late() {
    let one = log(&[(0, "granted", "n", "a", 1, ""), (12, "released", "n", "a", 1, TOOK_2)]);
    let two = log(&[(11, "granted", "n", "b", 2, ""), (20, "released", "n", "b", 2, TOOK_2)]);
    let logs = logs(&["no json\n{\"half\":\n".to_owned() + &one, two]);
    assert!(judge(&logs, Duration::ZERO).is_empty());
    assert_eq!((logs.holds.len(), logs.skipped, logs.lines), (2, 2, 6));
    assert!(report::text(&logs, &[], None).contains("nothing is wrong"));
}

#[test]
fn overlaps_stale_releases_and_tokens_are_found() {
    let one = log(&[
        (0, "granted", "n", "a", 5, ""),
        (30, "renewed", "n", "a", 5, ""),
        (50, "lost", "n", "a", 5, r#","overdue_us":10000,"reason":"expired","held_us":40000"#),
        (60, "stale_release", "n", "a", 5, r#","reason":"expired""#),
    ]);
    let two =
        log(&[(25, "granted", "n", "b", 4, ""), (70, "granted", "n", "c", 5, ""), (5, "granted", "m", "d", 1, "")]);
    let logs = logs(&[one, two]);
    let found = judge(&logs, Duration::ZERO);
    let kinds: Vec<_> = found
        .iter()
        .map(|finding| match finding {
            Finding::Overlap { first, second, from, until } => {
                format!("{} {} {}", first.claim, second.claim, until.max(from) - from)
            }
            Finding::Stale(stale) => format!("stale {}", stale.claim),
            Finding::TokenOrder { earlier, later } => format!("{} {}", earlier.claim, later.claim),
        })
        .collect();
    // b has no sign of life after its grant: it overlaps in that instant.
    assert_eq!(kinds, ["a b 0", "stale a", "a c"], "{found:?}");
    assert_eq!(judge(&logs, Duration::from_millis(20)).len(), 2, "an overlap of 15 ms is within the skew");
    let json = report::json(&logs, &found, None);
    assert_eq!(json["findings"][0]["kind"], "overlap");
    assert_eq!(json["findings"][0]["holds"][0]["reason"], "expired");
}

#[test]
fn names_cannot_break_out_of_the_page_or_move_the_cursor() {
    let name = "<script>alert('1')</script>\"&\u{1b}[2J";
    let one = log(&[(0, "granted", name, "a", 1, ""), (9, "renewed", name, "a", 1, "")]);
    let two = log(&[(5, "granted", name, "b", 2, "")]);
    let logs = logs(&[one, two]);
    let found = judge(&logs, Duration::ZERO);
    let page = html::page(&logs, &found);
    assert!(!page.contains("<script") && page.contains("&lt;script&gt;alert(&#39;1&#39;)"));
    assert!(page.contains("prefers-color-scheme:dark") && page.contains("<svg"));
    assert!(!page.contains("http") && !page.contains('\u{1b}'), "nothing from elsewhere");
    assert!(!report::text(&logs, &found, None).contains('\u{1b}'));
}

#[test]
fn a_ttl_is_advised_for_each_prefix() {
    let held = r#","held_us":900000,"took_us":0"#;
    let one = log(&[
        (0, "granted", "orders/1", "a", 1, r#","ttl_ms":1000,"waited_us":9000000"#),
        (900, "released", "orders/1", "a", 1, held),
        (0, "granted", "users/1", "b", 1, r#","ttl_ms":3000"#),
        (900, "released", "users/1", "b", 1, held),
    ]);
    let logs = logs(&[one]);
    let advice = advice::by_prefix(&logs, Duration::from_secs(2));
    assert_eq!((&*advice[0].prefix, &*advice[1].prefix), ("orders/", "users/"));
    assert_eq!(advice[0].advice.ttl(), Some(Duration::from_millis(2_300)));
    let text = report::text(&logs, &[], Some(&advice));
    assert!(text.contains("too short") && !text.contains("hot"), "{text}");
    assert!(advice[1].advice.warnings().is_empty(), "{text}");
}

#[test]
fn time_stamps_of_any_offset() {
    let utc = time("2026-01-02T03:04:05.000006Z").unwrap();
    assert_eq!(time("2026-01-02T05:04:05.000006+02:00"), Some(utc));
    assert_eq!(time("2026-01-01T22:34:05.000006-04:30"), Some(utc));
    assert_eq!(shown(utc), "2026-01-02T03:04:05.000006Z");
    for odd in ["", "Z", "yesterday", "2026-01-02T03:04:05", "äöü+01:00"] {
        assert_eq!(time(odd), None, "{odd}");
    }
}
