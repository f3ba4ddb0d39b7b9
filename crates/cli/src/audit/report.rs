//! What was found, as text and as JSON.

use super::advice::PrefixAdvice;
use super::judge::{Finding, unclear};
use super::read::{Ended, Hold, Logs, shown};
use crate::output::{clean, human};
use serde_json::{Value, json};
use std::time::Duration;

fn span(from: i64, until: i64) -> Duration {
    Duration::from_micros(u64::try_from(until.saturating_sub(from)).unwrap_or_default())
}

pub(super) fn text(logs: &Logs, found: &[Finding<'_>], advice: Option<&[PrefixAdvice]>) -> String {
    let names = logs.by_name().len();
    let mut text = format!(
        "{} holds of {names} names in {} files, {} lines of {} skipped\n",
        logs.holds.len(),
        logs.files.len(),
        logs.skipped,
        logs.lines
    );
    for finding in found {
        text.push_str(&finding_text(logs, finding));
    }
    let unclear = unclear(logs);
    for (first, second) in &unclear {
        text.push_str(&unclear_text(logs, first, second));
    }
    text.push_str(&match found.len() {
        0 if !unclear.is_empty() => "nothing is surely wrong\n".to_owned(),
        0 => "nothing is wrong\n".to_owned(),
        1 => "1 finding\n".to_owned(),
        n => format!("{n} findings\n"),
    });
    for PrefixAdvice { prefix, advice } in advice.unwrap_or_default() {
        text.push_str(&format!("\n{}: {advice}\n", clean(prefix)));
        for warning in advice.warnings() {
            text.push_str(&format!("  warning: {}\n", clean(&warning.to_string())));
        }
    }
    text
}

fn finding_text(logs: &Logs, finding: &Finding<'_>) -> String {
    let name = clean(finding.name());
    match finding {
        Finding::Overlap { first, second, from, until } => format!(
            "overlap: {name} was held by two from {} for {}\n{}{}",
            shown(*from),
            human(span(*from, *until)),
            hold_text(logs, first),
            hold_text(logs, second)
        ),
        Finding::Stale(stale) => format!(
            "stale release: {name} at {}\n  token {} of {}, claim {}\n",
            shown(stale.at),
            stale.token,
            clean(&stale.holder),
            clean(&stale.claim)
        ),
        Finding::TokenOrder { earlier, later } => format!(
            "token order: {name}: a later hold has no larger token\n{}{}",
            hold_text(logs, earlier),
            hold_text(logs, later)
        ),
    }
}

fn unclear_text(logs: &Logs, first: &Hold, second: &Hold) -> String {
    format!(
        "unclear: {} was granted before the lease of a hold ran out whose log ends before that, until {} at most\n{}{}",
        clean(&first.name),
        shown(first.until),
        hold_text(logs, first),
        hold_text(logs, second)
    )
}

fn hold_text(logs: &Logs, hold: &Hold) -> String {
    let end = match &hold.ended {
        Ended::Unknown => "last seen".to_owned(),
        Ended::Released => "released".to_owned(),
        Ended::Lost(reason) => format!("lost ({})", clean(reason)),
    };
    let note = hold.note.as_deref().map(|note| format!(", note {}", clean(note))).unwrap_or_default();
    format!(
        "  token {} of {}{note}, claim {}\n    granted {}, {end} {}, in {}\n",
        hold.token,
        clean(&hold.holder),
        clean(&hold.claim),
        shown(hold.granted),
        shown(hold.end),
        clean(logs.file(hold.file))
    )
}

pub(super) fn json(logs: &Logs, found: &[Finding<'_>], advice: Option<&[PrefixAdvice]>) -> Value {
    let findings: Vec<_> = found.iter().map(|finding| finding_json(logs, finding)).collect();
    let advice = advice.map(|advice| advice.iter().map(advice_json).collect::<Vec<_>>());
    json!({
        "files": logs.files,
        "lines": logs.lines,
        "skipped": logs.skipped,
        "holds": logs.holds.len(),
        "names": logs.by_name().len(),
        "findings": findings,
        "unclear": unclear(logs).iter().map(|(first, second)| json!({
            "name": first.name, "engine": first.engine, "until": shown(first.until),
            "holds": [hold_json(logs, first), hold_json(logs, second)],
        })).collect::<Vec<_>>(),
        "advice": advice,
    })
}

fn finding_json(logs: &Logs, finding: &Finding<'_>) -> Value {
    match finding {
        Finding::Overlap { first, second, from, until } => json!({
            "kind": "overlap", "name": second.name, "engine": second.engine,
            "from": shown(*from), "until": shown(*until), "overlap_us": until.saturating_sub(*from),
            "holds": [hold_json(logs, first), hold_json(logs, second)],
        }),
        Finding::Stale(stale) => json!({
            "kind": "stale_release", "name": stale.name, "engine": stale.engine, "at": shown(stale.at),
            "claim": stale.claim, "token": stale.token, "holder": stale.holder,
        }),
        Finding::TokenOrder { earlier, later } => json!({
            "kind": "token_order", "name": later.name, "engine": later.engine,
            "holds": [hold_json(logs, earlier), hold_json(logs, later)],
        }),
    }
}

fn hold_json(logs: &Logs, hold: &Hold) -> Value {
    let (ended, reason) = match &hold.ended {
        Ended::Unknown => ("unknown", None),
        Ended::Released => ("released", None),
        Ended::Lost(reason) => ("lost", Some(reason)),
    };
    json!({
        "claim": hold.claim, "token": hold.token, "holder": hold.holder, "note": hold.note,
        "granted": shown(hold.granted), "end": shown(hold.end), "ended": ended, "reason": reason,
        "file": logs.file(hold.file),
    })
}

fn advice_json(PrefixAdvice { prefix, advice }: &PrefixAdvice) -> Value {
    let millis = |time: Duration| time.as_secs_f64() * 1_000.0;
    let warnings: Vec<_> = advice.warnings().iter().map(ToString::to_string).collect();
    json!({
        "prefix": prefix, "holds": advice.holds(), "p50_ms": millis(advice.p50()), "p99_ms": millis(advice.p99()),
        "max_ms": millis(advice.max()), "ttl_ms": advice.ttl().map(millis), "warnings": warnings,
    })
}
