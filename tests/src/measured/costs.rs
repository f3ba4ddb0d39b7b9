//! What the README says of what a lock costs.

use super::Result;
use super::bench::{Bench, Budget, ENGINES, Row};
use super::lines::Run;
use super::words::{engine as title, wrapped};
use std::fmt::Write;

const CASES: [&str; 5] = ["one task", "64 tasks", "8 tasks, one name", "8 processes, one name", "try on a held lock"];

/// Where the smallest share of a lock is less, as a part of the largest, most grants go to whoever has just released it.
const HANDS_OVER: f64 = 0.5;

pub(super) fn text(bench: &Bench) -> Result<String> {
    let ours = bench.row("one task", "redis", "ours").ok_or("Redis was not measured")?;
    let later = |run: &Run| {
        let engines: Vec<_> = run.engines.iter().map(|engine| title(engine)).collect();
        format!(" ({} on {})", engines.join(", "), run.told())
    };
    let later: String = bench.later.iter().map(later).collect();
    let mut text = wrapped(&format!(
        "Measured on {}{later}, by `{}`: {} rounds, in which contenders take turns; client and server are pinned to one processor. \
         *Floor* is the fewest commands that do the same, with a token, sent raw one by one through the same client library. A \
         number is our rate as a multiple of the floor's, the median of the rounds; *noise* is the floor against itself. With 64 \
         tasks, what is ready together travels together. For one name the floor is one task that meets nobody; \\* marks where \
         most grants go to whoever has just released, before those who wait have heard of it.",
        bench.run.told(),
        bench.run.command,
        ours.rounds
    ));
    text.push_str("\n\n");
    ratios(bench, &mut text)?;
    let told = |budget: &&Budget| !budget.what.contains("to another process") || hands_over(bench, &budget.engine);
    let told: Vec<_> = bench.budgets.iter().filter(told).collect();
    budgets(&told, &mut text)?;
    peers(bench, &mut text)?;
    Ok(text)
}

/// The service on which one task acquires and releases most often.
pub(super) fn quickest(bench: &Bench) -> Option<&str> {
    let services = ENGINES.into_iter().filter(|engine| *engine != "sqlite");
    let rate = |engine| bench.row("one task", engine, "ours").and_then(|row| row.ops_per_s);
    services.max_by(|one, other| rate(one).partial_cmp(&rate(other)).unwrap_or(std::cmp::Ordering::Equal))
}

fn head(first: &str, columns: &[&str], text: &mut String) -> std::fmt::Result {
    writeln!(text, "| {first} | {} |", columns.join(" | "))?;
    writeln!(text, "|{}{}|", "---|".repeat(first.split('|').count()), ["--:"].repeat(columns.len()).join("|"))
}

fn ratios(bench: &Bench, text: &mut String) -> Result<()> {
    let columns: Vec<_> = CASES.into_iter().chain(["noise"]).collect();
    head("engine", &columns, text)?;
    for engine in ENGINES {
        let ratio = |case, who| {
            let row = bench.row(case, engine, who);
            let mark = if who == "ours" && row.is_some_and(|row| hogs(case, row)) { "\\*" } else { "" };
            number(row.and_then(|row| row.ratio_to_floor)) + mark
        };
        let cells = CASES.into_iter().map(|case| ratio(case, "ours")).chain([ratio("one task", "floor again")]);
        let nodes = if engine == "redlock" { ", three nodes" } else { "" };
        writeln!(text, "| {}{nodes} | {} |", title(engine), cells.collect::<Vec<_>>().join(" | "))?;
    }
    Ok(())
}

/// Who takes the lock again at once, before the others ask, hands nothing over.
fn hogs(case: &str, row: &Row) -> bool {
    case.contains("one name") && row.evenness.is_some_and(|evenness| evenness < HANDS_OVER)
}

/// Whether a grant between processes is mostly a handover, so that its commands are those of one.
fn hands_over(bench: &Bench, engine: &str) -> bool {
    let case = "8 processes, one name";
    !bench.row(case, engine, "ours").is_some_and(|row| hogs(case, row))
}

fn number(value: Option<f64>) -> String {
    match value {
        None => "–".to_owned(),
        Some(value) if value.abs() >= 100.0 => format!("{value:.0}"),
        Some(value) => format!("{value:.2}"),
    }
}

/// A line for each budget; where engines have limits of their own, each beside its value.
fn budgets(budgets: &[&Budget], text: &mut String) -> Result<()> {
    let met = budgets.iter().filter(|budget| budget.met).count();
    let other = if met == budgets.len() { "." } else { "; what is over its limit stands in bold." };
    write!(text, "\nOf {} budgets {met} are met{other}\n\n", budgets.len())?;
    let engines: Vec<_> = ENGINES.into_iter().chain(["memory"]).collect();
    let columns: Vec<_> = engines.iter().map(|engine| title(engine)).collect();
    head("budget | limit", &columns, text)?;
    let mut whats: Vec<&str> = Vec::new();
    for budget in budgets {
        if !whats.contains(&budget.what.as_str()) {
            whats.push(&budget.what);
        }
    }
    for what in whats {
        let of_it: Vec<_> = budgets.iter().copied().filter(|budget| budget.what == what).collect();
        let limit =
            |budget: &Budget| format!("{} {}", if budget.is_least { "≥" } else { "≤" }, number(Some(budget.limit)));
        let mut limits: Vec<_> = of_it.iter().map(|budget| limit(budget)).collect();
        limits.dedup();
        let common = if let [only] = limits.as_slice() { only.as_str() } else { "of each" };
        // The name of a method is code.
        let what = what.replace("lost()", "`lost()`").replace("is_held()", "`is_held()`");
        write!(text, "| {what} | {common} |")?;
        for engine in &engines {
            let Some(budget) = of_it.iter().find(|budget| budget.engine == *engine) else {
                write!(text, " – |")?;
                continue;
            };
            let own = if limits.len() > 1 { format!(", {}", limit(budget)) } else { String::new() };
            let bold = if budget.met { "" } else { "**" };
            write!(text, " {bold}{}{own}{bold} |", number(Some(budget.value)))?;
        }
        writeln!(text)?;
    }
    Ok(())
}

fn peers(bench: &Bench, text: &mut String) -> Result<()> {
    let beside = "Beside what one would take instead, on the same server, by our rate as a multiple of *its*: below 1 it is \
        ahead, and the last column says what that saves. \\* is as above, at the peer.";
    write!(text, "\n{}\n\n", wrapped(beside))?;
    let columns: Vec<_> = CASES.into_iter().chain(["cold start"]).collect();
    writeln!(text, "| engine | beside | {} | it does without |", columns.join(" | "))?;
    writeln!(text, "|---|---|{}---|", "--:|".repeat(columns.len()))?;
    for engine in ENGINES {
        for peer in bench.peers.iter().filter(|peer| peer.engine == engine) {
            let cell = |case| {
                let theirs = bench.row(case, engine, &peer.who)?;
                let ratio = ratio(bench.row(case, engine, "ours")?, theirs)?;
                Some(format!("{ratio:.2}{}", if hogs(case, theirs) { "\\*" } else { "" }))
            };
            let cells: Vec<_> = columns.iter().map(|case| cell(case).unwrap_or_else(|| "–".to_owned())).collect();
            writeln!(text, "| {} | `{}` | {} | {} |", title(engine), peer.who, cells.join(" | "), peer.lacks)?;
        }
    }
    Ok(())
}

/// Both beside the floor's neighbouring rounds where that was measured: it takes off what else the machine did.
fn ratio(ours: &Row, theirs: &Row) -> Option<f64> {
    let beside = ours.ratio_to_floor.zip(theirs.ratio_to_floor);
    beside.or(ours.ops_per_s.zip(theirs.ops_per_s)).map(|(ours, theirs)| ours / theirs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::bench::taken;

    fn rows() -> String {
        let mut rows = String::new();
        for engine in ENGINES {
            for (who, ratio) in [("ours", 0.912_345_6), ("floor again", 1.01), ("theirs", 2.0)] {
                rows.push_str(&format!(
                    "{{\"case\":\"one task\",\"engine\":\"{engine}\",\"who\":\"{who}\",\"ratio_to_floor\":{ratio},\"rounds\":9,\
                     \"pinned\":true,\"p50_us\":null}}\n"
                ));
            }
        }
        rows + "{\"kind\":\"how\",\"quick\":true,\"rounds\":9,\"round_ms\":30,\"processors\":2}\n\
            {\"kind\":\"budget\",\"engine\":\"redis\",\"what\":\"w\",\"value\":1.2,\"limit\":1.15,\"is_least\":false,\"met\":false}\n\
            {\"kind\":\"budget\",\"engine\":\"etcd\",\"what\":\"w\",\"value\":1.1,\"limit\":1.15,\"is_least\":false,\"met\":true}\n\
            {\"kind\":\"peer\",\"engine\":\"redis\",\"who\":\"theirs\",\"lacks\":\"no token\"}\n"
    }

    #[test]
    fn what_is_kept_says_what_was_measured() {
        let kept = taken(&rows(), "2026-01-01", "with nothing else to do", "").unwrap();
        assert!(kept.contains("\"ratio_to_floor\":0.9123") && !kept.contains("null"), "{kept}");
        let said = text(&Bench::read(&kept).unwrap()).unwrap();
        for part in [
            "with nothing else to do, by\n`cargo run --release -p fencelock-bench -- --quick`: 9 rounds",
            "| Redis | 0.91 | – | – | – | – | 1.01 |\n",
            "Of 2 budgets 1 are met; what is over its limit stands in bold.",
            "| w | ≤ 1.15 | – | – | – | **1.20** | – | 1.10 | – | – |\n",
            "| Redis | `theirs` | 0.46 | – | – | – | – | – | no token |\n",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }

    #[test]
    fn a_run_of_some_engines_alone_is_not_kept() {
        let some: String =
            rows().lines().filter(|line| !line.contains("\"etcd\"")).map(|line| format!("{line}\n")).collect();
        assert!(taken(&some, "2026-01-01", "", "").is_err());
        let older: String =
            rows().lines().filter(|line| !line.contains("kind")).map(|line| format!("{line}\n")).collect();
        assert!(taken(&older, "2026-01-01", "", "").is_err());
    }
}
