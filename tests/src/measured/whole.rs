//! How `tests/run` ended.

use super::Result;
use super::lines::Run;
use super::words::{list, wrapped};

/// The file to keep it in, and its text: where and when, and the lines that the runner printed after `== summary`.
pub(super) fn taken(log: &str, date: &str) -> Result<(String, String)> {
    let after = log.rsplit_once("\n== summary\n").map(|(_, after)| after);
    let after = after.or_else(|| log.strip_prefix("== summary\n")).ok_or("it has no line `== summary`")?;
    let is_of_it = |line: &&str| line.starts_with("ok  ") || line.starts_with("FAILED  ");
    let lines: Vec<_> = after.lines().take_while(is_of_it).collect();
    let last = after.lines().nth(lines.len()).unwrap_or_default();
    if !last.ends_with(" passed, 0 failed") || lines.iter().any(|line| !line.starts_with("ok  ")) {
        return Err(format!("only a green run is kept; this one ended with `{last}`").into());
    }
    let file = match (lines.first().and_then(|line| stage(line)), lines.len()) {
        (Some((engine, _)), 1) => format!("tests-{engine}.txt"),
        _ => "tests.txt".to_owned(),
    };
    let run = Run::here(date, String::new(), "");
    Ok((file, format!("{}\n{}\n{last}\n", run.told(), lines.join("\n"))))
}

/// A line of the summary: the stage, and its seconds.
fn stage(line: &str) -> Option<(&str, f64)> {
    let (name, took) = line.strip_prefix("ok")?.trim().split_once(", ")?;
    Some((name, took.strip_suffix(" s")?.parse().ok()?))
}

/// The stages of `tests/run`, in their order.
pub(super) fn stages(run: &str) -> Result<Vec<String>> {
    let (_, body) = run.split_once("everything() {").ok_or("tests/run has no `everything`")?;
    let (body, _) = body.split_once("\n}").ok_or("`everything` has no end")?;
    let name = |line: &str| line.trim().strip_prefix("stage ")?.split(' ').next().map(str::to_owned);
    Ok(body.lines().filter_map(name).collect())
}

pub(super) fn one(kept: &str) -> Result<String> {
    let (_, summary) = kept.split_once('\n').ok_or("it is empty")?;
    Ok(format!(
        "```console\n$ tests/run sqlite                       # the tests of one engine\n…\n== summary\n{summary}```\n"
    ))
}

pub(super) fn all(kept: Option<&str>, stages: &[String]) -> Result<String> {
    let begin = "Without an engine's name it is every check and test, on real servers under real faults";
    let Some(kept) = kept else {
        let stages: Vec<_> = stages.iter().map(|stage| format!("`{stage}`")).collect();
        return Ok(wrapped(&format!("{begin}: {}.", list(&stages))) + "\n");
    };
    let (told, summary) = kept.split_once('\n').ok_or("it is empty")?;
    let ran: Vec<_> = summary.lines().filter_map(stage).collect();
    let names: Vec<_> = ran.iter().map(|(name, _)| *name).collect();
    if names != stages {
        return Err(format!("tests/run has the stages {stages:?}, and what is kept has {names:?}").into());
    }
    let minutes = ran.iter().map(|(_, took)| took).sum::<f64>() / 60.0;
    let said = wrapped(&format!("{begin}. It took {minutes:.0} minutes ({told}), and ended so:"));
    Ok(format!("{said}\n\n```console\n$ tests/run\n…\n== summary\n{summary}```\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "much\n== summary\nok      fmt, 6.0 s\nok      tests, 60.0 s\n12 passed, 0 failed\nreal 1m\n";

    #[test]
    fn only_a_green_run_of_the_stages_that_there_are_is_shown() {
        let (file, kept) = taken(LOG, "2026-01-01").unwrap();
        assert_eq!(file, "tests.txt");
        assert!(
            kept.ends_with("processors\nok      fmt, 6.0 s\nok      tests, 60.0 s\n12 passed, 0 failed\n"),
            "{kept}"
        );
        let stages = ["fmt", "tests"].map(str::to_owned);
        let said = all(Some(&kept), &stages).unwrap();
        assert!(said.contains("It took 1 minutes"), "{said}");
        assert!(all(Some(&kept), &stages[..1]).is_err());
        assert!(!all(None, &stages).unwrap().contains("minutes"));
        for wrong in [LOG.replace("12 passed, 0", "12 passed, 1"), LOG.replace("ok      fmt", "FAILED  fmt")] {
            assert!(taken(&wrong, "2026-01-01").is_err());
        }
    }

    #[test]
    fn a_run_of_one_engine_is_kept_by_its_name() {
        let (file, kept) = taken("== summary\nok      sqlite, 87.9 s\n356 passed, 0 failed\n", "2026-01-01").unwrap();
        assert_eq!(file, "tests-sqlite.txt");
        assert!(one(&kept).unwrap().ends_with("== summary\nok      sqlite, 87.9 s\n356 passed, 0 failed\n```\n"));
    }
}
