//! The examples run, and say what they should.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test")]

use std::path::Path;
use std::process::{Command, Output};

/// Runs an example in `directory`, with no settings but `variables`.
fn run(example: &str, directory: &Path, variables: &[(&str, &str)]) -> Output {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("Cargo.toml");
    let mut command = Command::new(env!("CARGO"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FENCELOCK_") {
            command.env_remove(name);
        }
    }
    command.args(["run", "--quiet", "--locked", "--example", example, "--manifest-path"]).arg(manifest);
    command.current_dir(directory).env("XDG_CONFIG_HOME", directory).envs(variables.iter().copied()).output().unwrap()
}

fn said(output: &Output) -> String {
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{errors}");
    said.into_owned()
}

#[test]
fn an_engine_of_ones_own_locks_by_its_url() {
    let directory = tempfile::tempdir().unwrap();
    let said = said(&run("custom_engine", directory.path(), &[]));
    assert!(said.contains("one holds it with token 1, two is shut out: true\ntwo holds it with token 2\n"), "{said}");
    assert!(said.contains("did you mean `request_timeout`?"), "{said}");
}

#[test]
fn one_program_runs_on_the_engine_of_file_or_environment() {
    let directory = tempfile::tempdir().unwrap();
    let run = |variables: &[_]| run("from_config", directory.path(), variables);

    let nothing = run(&[]);
    let told = String::from_utf8_lossy(&nothing.stdout);
    assert!(!nothing.status.success() && told.contains("no lock service"), "{told}");

    let by_environment = said(&run(&[("FENCELOCK_URL", "memory:")]));
    assert!(by_environment.contains("no fencelock.toml") && by_environment.contains("engine: memory,"));

    std::fs::write(directory.path().join("fencelock.toml"), "[lock]\nurl = \"sqlite:locks.db\"\nttl = \"5s\"").unwrap();
    let by_file = said(&run(&[]));
    assert!(by_file.contains("configuration: fencelock.toml") && by_file.contains("engine: sqlite,"), "{by_file}");
    assert!(by_file.trim_end().ends_with("released") && directory.path().join("locks.db").exists(), "{by_file}");
    let over = said(&run(&[("FENCELOCK_URL", "memory:")]));
    assert!(over.contains("configuration: fencelock.toml") && over.contains("engine: memory,"), "{over}");

    std::fs::write(directory.path().join("fencelock.toml"), "[lock]\nurl = \"sqlite:locks.db\"\ntll = \"5s\"").unwrap();
    let wrong = run(&[]);
    let told = String::from_utf8_lossy(&wrong.stdout);
    assert!(!wrong.status.success() && told.contains("fencelock.toml:3: unknown setting `tll`"), "{told}");
}
