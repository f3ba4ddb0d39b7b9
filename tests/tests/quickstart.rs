//! The first command of the README, run.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test")]

use std::path::Path;
use std::process::Command;

#[test]
fn the_quickstart_ends_as_it_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--locked", "--example", "quickstart"])
        .current_dir(root)
        .output()
        .unwrap();
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{errors}");
    let last = said.trim_end().lines().last().unwrap();
    assert!(last.contains("the paused holder was told, its stale write refused"), "{said}");
    assert!(said.contains("alice writes all the same: refused, stale"), "{said}");

    // What the README shows, but for numbers, and for who of the two comes first while nothing goes wrong.
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let (_, shown) = readme.split_once("$ cargo run --example quickstart ").unwrap();
    let (shown, _) = shown.split_once("```").unwrap();
    let (_, shown) = shown.split_once('\n').unwrap();
    let lines = |text: &str| -> Vec<String> {
        let lines = text.trim_end().lines().filter(|line| !line.contains(": sold, "));
        lines.map(|line| line.replace(|c: char| c.is_ascii_digit(), "")).collect()
    };
    assert_eq!(lines(shown), lines(&said));
}
