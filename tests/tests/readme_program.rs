//! The README's program, in a package of its own as a new user makes it: on a SQLite file, then on Redis.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test")]

use fencelock_lab::Redis;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Runs the package in `folder`, and tells what it said; what was built before is used again.
fn run(folder: &Path, program: &str) -> String {
    std::fs::write(folder.join("src/main.rs"), program).unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["run", "--quiet", "--offline", "--target-dir"]).arg(root().join("target")).current_dir(folder);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("FENCELOCK_") || name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&*name);
        }
    }
    let output = cargo.output().unwrap();
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{errors}");
    said.into_owned()
}

#[test]
fn the_program_of_the_readme_locks_on_sqlite_and_on_redis() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let (_, used) = readme.split_once("\n## Use\n").unwrap();
    let (_, program) = used.split_once("```rust,no_run\n").unwrap();
    let (program, after) = program.split_once("```").unwrap();
    let url = "\"sqlite:locks.db\"";
    assert!(
        program.contains(url) && after.contains("the same program with `fencelock::connect(\"redis://127.0.0.1\")`")
    );
    assert!(used.contains("cargo add tokio --features macros,rt-multi-thread\n"), "{used}");

    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("src")).unwrap();
    // As `cargo new` and `cargo add` write it, with the features of both engines, and built as the workspace is.
    let crates = root().join("crates/fencelock");
    let manifest = format!(
        "[package]\nname = \"shop\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n\
         fencelock = {{ path = {crates:?}, features = [\"redis\"] }}\n\
         tokio = {{ version = \"1\", features = [\"macros\", \"rt-multi-thread\"] }}\n\n\
         [profile.dev]\ndebug = \"line-tables-only\"\n\n[profile.dev.package.\"*\"]\ndebug = false\n"
    );
    std::fs::write(folder.path().join("Cargo.toml"), manifest).unwrap();
    std::fs::copy(root().join("Cargo.lock"), folder.path().join("Cargo.lock")).unwrap();

    let said = run(folder.path(), program);
    assert!(said.starts_with("working under token ") && folder.path().join("locks.db").exists(), "{said}");
    let redis = Redis::start().unwrap();
    let said = run(folder.path(), &program.replace(url, &format!("\"redis://{}\"", redis.address())));
    assert!(said.starts_with("working under token "), "{said}");
    let keys = redis.command(&["KEYS", "*fence*"]).unwrap();
    assert!(keys.contains("fence"), "the token is counted on the server: {keys}");
}
