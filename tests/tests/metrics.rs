//! The example that is measured: what is scraped while eight processes contend is what they did.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test")]

use std::path::Path;
use std::process::Command;

#[test]
fn what_is_scraped_agrees_with_the_history() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("Cargo.toml");
    let mut command = Command::new(env!("CARGO"));
    command.args(["run", "--quiet", "--locked", "--manifest-path"]).arg(manifest);
    command.args(["-p", "fencelock-examples", "--features", "metrics", "--example", "metrics"]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("measured: 200 granted, 200 released"), "{said}");
}
