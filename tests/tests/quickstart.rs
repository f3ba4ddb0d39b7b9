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
}
