//! What the examples show is so.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs, reason = "a test")]

use fencelock_lab::Redis;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// What it said, having succeeded; no setting reaches it.
fn said(mut command: Command) -> String {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FENCELOCK_") {
            command.env_remove(name);
        }
    }
    let Output { status, stdout, stderr } = command.output().unwrap();
    let (said, errors) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{said}\n{errors}");
    said.into_owned()
}

/// As a new user runs it.
fn run(example: &str, arguments: &[&Path]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO"));
    command
        .args(["run", "--quiet", "--locked", "--example", example, "--manifest-path"])
        .arg(root().join("Cargo.toml"));
    command.arg("--").args(arguments).current_dir(&directory).env("XDG_CONFIG_HOME", directory.path());
    said(command)
}

/// With every engine, as all tests are built: nothing is built again.
fn with_all_engines(example: &str) -> Command {
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--locked", "--workspace", "--all-features", "--example", example]);
    build.args(["--message-format", "json"]).current_dir(root());
    let messages = said(build);
    let mut built = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let program = built.find(|message| message["target"]["name"] == example).unwrap();
    Command::new(program["executable"].as_str().unwrap())
}

/// A table for a terminal: each row's cells by their heads, without what was measured.
fn cells(text: &str) -> BTreeMap<String, BTreeMap<String, String>> {
    let mut lines = text.lines().skip_while(|line| !line.starts_with("engine  "));
    let split = |line: &str| -> Vec<String> {
        let measured = |cell: &str| {
            let (number, unit) = cell.trim_start_matches("TWO HOLDERS for ").split_once(' ').unwrap_or_default();
            let unit = unit.split(',').next().unwrap_or_default();
            number.parse::<f64>().is_ok() && ["s", "ms", "us"].contains(&unit)
        };
        let words =
            |cell: &str| if measured(cell) { cell.replace(|c: char| c.is_ascii_digit(), "") } else { cell.to_owned() };
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(words).collect()
    };
    let heads = split(lines.next().unwrap_or_default());
    let row = |line: &str| {
        let cells = split(line);
        (cells.len() == heads.len()).then(|| {
            let row: BTreeMap<_, _> = heads.iter().cloned().zip(cells).collect();
            (row["engine"].clone(), row.into_iter().filter(|(head, _)| head != "acquire").collect())
        })
    };
    lines.filter_map(row).collect()
}

#[test]
fn all_engines_are_compared_within_minutes() {
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("page.html");
    let mut command = with_all_engines("compare_guarantees");
    command.arg("--html").arg(&page).current_dir(&directory).env("XDG_CONFIG_HOME", directory.path());
    let start = Instant::now();
    let said = said(command);
    assert!(start.elapsed() < Duration::from_secs(180), "it took {:?}", start.elapsed());

    let rows: Vec<_> = said.lines().filter(|line| line.contains("lost: its deadline passed")).collect();
    assert_eq!(rows.len(), 9, "{said}");
    for row in &rows {
        assert!(row.contains("accepted, a sale lost") && row.contains("refused, 9 left"), "{row}");
        assert_eq!(row.contains("TWO HOLDERS"), row.starts_with("redis, no persistence"), "{row}");
    }

    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let shown: String = readme
        .lines()
        .skip_while(|line| !line.starts_with("engine  "))
        .take_while(|line| *line != "```")
        .fold(String::new(), |text, line| text + line + "\n");
    let (printed, shown) = (cells(&said), cells(&shown));
    assert_eq!(shown.len(), 5, "{shown:?}");
    for (engine, row) in &shown {
        for (head, cell) in row {
            assert_eq!(Some(cell), printed.get(engine).and_then(|row| row.get(head)), "{engine}, {head}: {said}");
        }
    }

    let page = std::fs::read_to_string(page).unwrap();
    assert_eq!(page.matches("<h2>").count(), 9);
    assert_eq!(page.matches("<i class=both style=\"left").count(), 2, "a double hold is drawn for both that hold");
    // Told where it begins, among what else happened then: after the grant that made two of one.
    let (before, _) = page.split_once("two hold at once, for ").unwrap();
    let (notes, at) = before.rsplit_once("<b class=\"bad\">").unwrap();
    assert!(at.ends_with(" s</b>") && notes.ends_with("bob is granted the lock</li><li class=\"bad\">"), "{before}");
    for outside in ["http:", "https:", "src=", "<link", "@import", "url("] {
        assert!(!page.contains(outside), "the page needs {outside}");
    }
}

#[test]
fn each_layer_catches_what_it_is_for() {
    let said = run("order_payment", &[]);
    let rows: Vec<Vec<_>> =
        said.lines().map(|line| line.split("  ").filter(|cell| !cell.is_empty()).collect()).collect();
    let right = |name: &str| {
        let row = rows.iter().find(|row| row.first() == Some(&name)).unwrap();
        row.iter().skip(1).map(|cell| cell.trim().starts_with("right")).collect::<Vec<_>>()
    };
    assert_eq!(right("nothing"), [false, false, false]);
    assert_eq!(right("lock"), [true, false, false]);
    for gated in ["lock and gate", "lock and version", "version alone"] {
        assert_eq!(right(gated), [true, true, false], "{gated}");
    }
    for whole in ["lock, gate and key", "all four"] {
        assert_eq!(right(whole), [true, true, true], "{whole}");
    }
}

#[test]
fn a_late_host_runs_the_job_again_unless_it_is_noted() {
    let said = run("cron_once", &[]);
    let runs: Vec<_> = said.lines().filter(|line| line.trim().starts_with("run ")).collect();
    assert_eq!(runs, ["  run 2 times", "  run 1 times"], "{said}");
}

#[test]
fn leaders_follow_one_another() {
    let said = run("leader", &[]);
    assert_eq!(said.matches("leads, term").count(), 3, "{said}");
    assert!(said.contains("steps down: leader: lost"), "{said}");
}

#[test]
fn a_token_is_worth_what_its_check_is() {
    let said = run("fenced_writes", &[]);
    let verdicts: Vec<_> = said.lines().filter_map(|line| line.split_once('(')).map(|(_, verdict)| verdict).collect();
    let (right, wrong) = ("right)", "WRONG, a deposit is lost)");
    assert_eq!(verdicts.get(..4).unwrap(), [wrong, right, wrong, right], "{said}");
}

#[test]
fn a_configuration_file_each_is_enough() {
    let configurations = root().join("examples/configs");
    let file = |engine: &str| configurations.join(format!("{engine}.toml"));
    let engines = ["memory", "sqlite", "postgres", "mysql", "redis", "redlock", "etcd", "zookeeper"];
    let files = engines.map(file);
    let said = run("swap_by_config", &files.each_ref().map(PathBuf::as_path));
    let line = |engine: &str| said.lines().find(|line| line.starts_with(file(engine).to_str().unwrap())).unwrap();
    assert!(line("memory").contains("memory, advisory; token 1, others shut out: true"), "{said}");
    assert!(line("sqlite").contains("sqlite, fenced;") && line("sqlite").contains("others shut out: true"), "{said}");
    assert!(line("etcd").contains("needs the cargo feature `etcd`"), "{said}");

    // What each of them says is read by an engine of that name, and wrong in nothing.
    for (engine, file) in engines.into_iter().zip(files) {
        let text = std::fs::read_to_string(&file).unwrap();
        let told = format!("{:?}", fencelock::Config::from_toml(&text, engine));
        assert!(told.starts_with("Ok"), "{told}");
    }
}

#[test]
fn old_and_new_locks_stand_side_by_side() {
    let redis = Redis::start().unwrap();
    let mut command = with_all_engines("migrate_from_set_nx");
    command.arg(redis.address().to_string());
    let said = said(command);
    assert_eq!(said.matches("nothing lost").count(), 3, "{said}");
    assert!(said.lines().any(|line| line.starts_with("two old, two new beside") && line.ends_with("nothing lost")));
}
