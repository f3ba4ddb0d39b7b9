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
fn what_a_killed_process_did_until_its_lease_ran_out_is_unclear_and_told() {
    let ttl = r#","ttl_ms":30"#;
    let killed = log(&[(0, "granted", "n", "a", 1, ttl), (10, "renewed", "n", "a", 1, r#","remaining_ms":30"#)]);
    let next = |ms| log(&[(ms, "granted", "n", "b", 2, ttl), (ms + 5, "released", "n", "b", 2, TOOK_2)]);
    for (ms, overlaps, unclear) in [(9, 1, 0), (11, 0, 1), (39, 0, 1), (40, 0, 0), (90, 0, 0)] {
        for files in [[killed.clone(), next(ms)], [next(ms), killed.clone()]] {
            let logs = logs(&files);
            let found = judge(&logs, Duration::ZERO);
            let (text, page) = (report::text(&logs, &found, None), html::page(&logs, &found));
            assert_eq!((found.len(), text.matches("unclear: n").count()), (overlaps, unclear), "{ms}: {text}");
            assert_eq!(page.matches("<b>unclear</b>").count(), unclear, "{ms}");
            assert_eq!(report::json(&logs, &found, None)["unclear"].as_array().unwrap().len(), unclear);
            assert_eq!(text.contains("nothing is wrong"), overlaps + unclear == 0, "{ms}: {text}");
        }
    }
    // One that has ended in its log is not in doubt.
    let ended = killed + &log(&[(12, "released", "n", "a", 1, TOOK_2)]);
    assert!(!report::text(&logs(&[ended, next(11)]), &[], None).contains("unclear"));
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

fn audited(lines: &[&str]) -> (Logs, usize) {
    let logs = logs(&[lines.join("\n") + "\n"]);
    let found = judge(&logs, Duration::ZERO);
    // Whatever was written, it can be shown in every way.
    let advised = advice::by_prefix(&logs, Duration::ZERO);
    let (text, page) = (report::text(&logs, &found, Some(&advised)), html::page(&logs, &found));
    assert!(!text.contains(['\u{1b}', '\u{202e}']) && !page.contains(['\u{1b}', '\u{202e}']), "{text}{page}");
    assert!(!page.contains("<script") && report::json(&logs, &found, Some(&advised)).is_object());
    let found = found.len();
    (logs, found)
}

#[test]
fn what_nobody_can_have_meant_is_skipped_and_harms_nothing() {
    let event = |at: &str, more: &str| {
        format!(
            r#"{{"target":"fencelock","timestamp":"2026-01-01T00:00:00Z","fields":{{"event":"granted","engine":"e","name":"n","claim":"{at}","token":1,"at_us":{at}{more}}}}}"#
        )
    };
    for at in [i64::MAX, i64::MIN, -1, 253_402_300_800_000_000] {
        let (logs, _) = audited(&[&event(&at.to_string(), "")]);
        assert_eq!((logs.holds.len(), logs.skipped), (0, 1), "{at}");
    }
    let most = u64::MAX.to_string();
    let more = format!(r#","ttl_ms":{most},"waited_us":{most},"held_us":{most},"took_us":{most},"overdue_us":{most}"#);
    let (granted, last) = (event("5", &more), event("253402300799999999", &more));
    let ended = granted.replace("granted", "released");
    let (logs, _) = audited(&[&granted, &last, &ended, &last.replace("granted", "lost")]);
    assert_eq!((logs.holds.len(), logs.skipped), (2, 0));
    let hostile = r#"\u001b[2J\u202e</title><script>alert(1)</script>\"'&"#;
    let hostile = log(&[(0, "granted", "m", "a", 1, ""), (9, "renewed", "m", "a", 1, "")]).replace("h-a", hostile);
    let hostile = hostile.replace(r#""name":"m""#, r#""name":"\u202e<script>\u001b""#);
    let (_, found) = audited(&[&hostile, &hostile.replace(r#""claim":"a""#, r#""claim":"<script>""#)]);
    assert_eq!(found, 2);
    for odd in [
        "0000-00-00T00:00:00Z",
        "9999-12-31T23:59:59-99:99",
        "2026-01-01T00:00:00+é:00",
        "1969-01-01T00:00:00Z",
        "Z",
        "",
    ] {
        assert!(time(odd).is_none_or(|at| at > 0), "{odd}");
    }
}

#[test]
fn a_line_without_end_is_not_kept() {
    let endless = std::io::Read::chain(std::io::Read::take(std::io::repeat(b'['), 64 << 20), &b"\n"[..]);
    let one = log(&[(0, "granted", "n", "a", 1, "")]);
    let mut logs = Logs::default();
    logs.read_from("odd", std::io::BufReader::new(std::io::Read::chain(endless, one.as_bytes()))).unwrap();
    assert_eq!((logs.holds.len(), logs.lines, logs.skipped), (1, 2, 1));
}

#[test]
fn a_hold_is_known_by_any_part_of_its_log() {
    let whole = log(&[
        (100, "granted", "n", "a", 1, r#","ttl_ms":500,"waited_us":7"#),
        (200, "renewed", "n", "a", 1, r#","held_us":100000"#),
        (302, "released", "n", "a", 1, r#","took_us":2000,"held_us":200000"#),
    ]);
    let other = log(&[(150, "granted", "n", "b", 2, ""), (160, "released", "n", "b", 2, TOOK_2)]);
    let lines: Vec<_> = whole.lines().collect();
    let known = |files: &[String]| {
        let logs = logs(files);
        let found = judge(&logs, Duration::ZERO).len();
        let hold = logs.holds.iter().find(|hold| hold.claim == "a").unwrap().clone();
        (hold.granted % 1_000_000, hold.end % 1_000_000, hold.ttl_ms, logs.skipped, found)
    };
    // A log whose beginning was rotated away, and two that were rotated and given newest first.
    for kept in [&lines[1..], &lines[2..]] {
        assert_eq!(known(&[kept.join("\n"), other.clone()]), (100_000, 300_000, None, 0, 1));
    }
    let rotated = [lines[2].to_owned(), lines[..2].join("\n"), other.clone()];
    assert_eq!(known(&rotated), (100_000, 300_000, Some(500), 0, 1));
    // An event that says when it was needs no time stamp that we can read.
    let stamps = whole.replace(r#""timestamp":"2023"#, r#""timestamp":"in 2023"#);
    let stamps = stamps.replace(r#""event":"granted""#, r#""event":"granted","at_us":1700000000100000"#);
    assert_eq!(logs(&[stamps]).holds.len(), 1);
}

#[test]
fn many_at_once_are_told_without_telling_every_pair() {
    let claims: Vec<_> = (0..200).map(|n| format!("c{n}")).collect();
    let grants = (0_i64..).zip(&claims).map(|(n, claim)| (n, "granted", "n", &**claim, n.unsigned_abs(), ""));
    let renewals = claims.iter().map(|claim| (1_000, "renewed", "n", &**claim, 1, ""));
    let logs = logs(&[log(&grants.chain(renewals).collect::<Vec<_>>())]);
    let found = judge(&logs, Duration::ZERO);
    assert!(found.len() >= 199 && found.len() < 2_000, "{}", found.len());
    for claim in &claims {
        let told = |finding: &Finding<'_>| matches!(finding, Finding::Overlap { first, second, .. } if first.claim == *claim || second.claim == *claim);
        assert!(found.iter().any(told), "{claim}");
    }
}

#[test]
fn a_stale_release_whose_hold_is_not_in_the_logs_is_told_once() {
    let one = log(&[(5, "stale_release", "n", "a", 5, "")]) + &log(&[(9, "granted", "n", "b", 6, "")]);
    let logs = logs(&[one.clone(), one]);
    assert!(matches!(judge(&logs, Duration::ZERO)[..], [Finding::Stale(_)]));
}
