//! What we depend on: under which licences, from where, and for which Rust.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs, reason = "a test")]

use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Licences that ask for no more than to be named and passed on.
const ALLOWED: [&str; 14] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Every package that any feature of any member brings, for any platform.
fn packages() -> Vec<Value> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("Cargo.toml");
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--locked", "--all-features", "--format-version", "1", "--manifest-path"]).arg(manifest);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// Whether an expression of SPDX can be met with allowed licences; `/` is an old way to write `OR`.
fn is_allowed(expression: &str) -> bool {
    let expression = expression.replace('/', " OR ");
    let parts = |by: &str| {
        let (mut depth, mut parts, mut part) = (0_i32, Vec::new(), Vec::new());
        for word in expression.replace('(', " ( ").replace(')', " ) ").split_whitespace() {
            depth += i32::from(word == "(") - i32::from(word == ")");
            if depth == 0 && word == by {
                parts.push(std::mem::take(&mut part).join(" "));
            } else {
                part.push(word.to_owned());
            }
        }
        parts.push(part.join(" "));
        parts
    };
    let (any, all) = (parts("OR"), parts("AND"));
    if any.len() > 1 {
        any.iter().any(|part| is_allowed(part))
    } else if all.len() > 1 {
        all.iter().all(|part| is_allowed(part))
    } else if let Some(inner) = expression.trim().strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
        is_allowed(inner)
    } else {
        ALLOWED.contains(&expression.trim())
    }
}

#[test]
fn expressions_are_read() {
    for allowed in ["MIT", "GPL-3.0 OR MIT", "MIT/Apache-2.0", "(MIT OR GPL-3.0) AND ISC", "MIT AND (ISC OR GPL-3.0)"] {
        assert!(is_allowed(allowed), "{allowed}");
    }
    for refused in
        ["GPL-3.0", "MIT AND GPL-3.0", "(MIT OR ISC) AND GPL-3.0", "LGPL-2.1-or-later", "", "Apache-2.0 WITH X"]
    {
        assert!(!is_allowed(refused), "{refused}");
    }
}

#[test]
fn every_licence_is_allowed() {
    for package in packages() {
        let licence = package["license"].as_str().unwrap_or_default();
        assert!(is_allowed(licence), "{} {} is under `{licence}`", package["name"], package["version"]);
    }
}

#[test]
fn everything_is_from_one_registry() {
    let packages = packages();
    // As `Cargo.lock` has it for tokio: no fork of a repository, no registry beside it.
    let tokio = packages.iter().find(|package| package["name"] == "tokio").unwrap();
    let registry = tokio["source"].as_str().unwrap();
    assert!(registry.starts_with("registry+"), "{registry}");
    for package in &packages {
        match package["source"].as_str() {
            Some(source) => assert_eq!(source, registry, "{}", package["name"]),
            // Ours, by path.
            None => assert!(package["name"].as_str().unwrap().starts_with("fencelock"), "{}", package["name"]),
        }
    }
}

/// What clippy's `incompatible_msrv` does for our own code.
#[test]
fn nothing_needs_a_newer_rust_than_we_say() {
    let version = |text: &str| -> Vec<u32> { text.split('.').map(|part| part.parse().unwrap()).collect() };
    let packages = packages();
    let ours = packages.iter().find(|package| package["name"] == "fencelock").unwrap();
    let ours = ours["rust_version"].as_str().unwrap();
    let mut highest = Vec::new();
    for package in packages.iter().filter(|package| package["source"].is_string()) {
        let Some(theirs) = package["rust_version"].as_str() else { continue };
        assert!(version(theirs)[..2] <= version(ours)[..2], "{} needs Rust {theirs}", package["name"]);
        highest = highest.max(version(theirs));
    }
    assert_eq!(highest[..2], version(ours)[..2], "no dependency needs as new a Rust as {ours} any more");
}
