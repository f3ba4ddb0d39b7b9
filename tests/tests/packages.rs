//! What is published: each crate packs without a warning, with its licences, and says what it is.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs, reason = "a test")]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Members that may be published.
fn members() -> Vec<Value> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--locked", "--no-deps", "--format-version", "1"]).current_dir(root());
    let metadata: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
    let published = |package: &&Value| package["publish"].is_null();
    metadata["packages"].as_array().unwrap().iter().filter(published).cloned().collect()
}

fn name(package: &Value) -> &str {
    package["name"].as_str().unwrap()
}

/// The file, or all files below the folder, if there is such a thing.
fn files(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
    entries.flat_map(|entry| files(&entry.unwrap().path())).collect()
}

#[test]
fn each_says_what_it_is() {
    let members = members();
    let names: Vec<_> = members.iter().map(name).collect();
    let engines = ["etcd", "redis", "redlock", "sql", "zookeeper"].map(|engine| format!("fencelock-{engine}"));
    assert!(engines.iter().all(|engine| names.contains(&engine.as_str())), "{names:?}");
    for private in ["fencelock-lab", "fencelock-tests", "fencelock-examples"] {
        assert!(!names.contains(&private));
    }
    for package in &members {
        let name = name(package);
        for key in ["description", "license", "repository", "readme", "rust_version"] {
            assert!(package[key].as_str().is_some_and(|value| !value.is_empty()), "{name}: {key}");
        }
        let (keywords, categories) =
            (package["keywords"].as_array().unwrap(), package["categories"].as_array().unwrap());
        assert!((1..=5).contains(&keywords.len()) && !categories.is_empty(), "{name}: keywords and categories");
        assert_eq!(package["metadata"]["docs"]["rs"]["all-features"], true, "{name}: docs.rs shows all features");
        let folder = Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap();
        for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
            let (theirs, ours) =
                (std::fs::read(folder.join(licence)).unwrap(), std::fs::read(root().join(licence)).unwrap());
            assert_eq!(theirs, ours, "{name}: {licence}");
        }
    }
}

/// Compiling them from their packages, which takes minutes, is left to `cargo publish --dry-run`.
#[test]
fn each_packs_without_a_warning() {
    let members = members();
    let target = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO"));
    command.args(["package", "--locked", "--no-verify", "--allow-dirty", "--target-dir"]).arg(target.path());
    for package in &members {
        command.args(["-p", name(package)]);
    }
    let output = command.current_dir(root()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("warning"), "{said}");
    for package in &members {
        let file = format!("{}-{}.crate", name(package), package["version"].as_str().unwrap());
        let packed = target.path().join("package").join(&file);
        let size = std::fs::metadata(&packed).unwrap().len();
        assert!((1_000..1_000_000).contains(&size), "{file} has {size} bytes");
        let list = Command::new("tar").arg("-tf").arg(&packed).output().unwrap();
        let list = String::from_utf8_lossy(&list.stdout);
        let folder = Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap();
        let mut needed = vec!["README.md", "LICENSE-MIT", "LICENSE-APACHE", "Cargo.toml"]
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<_>>();
        // Statements, scripts, guides, kept deployments, the script that packs the program: all that it is built or read from.
        for part in ["src", "guides", "reference.toml", "dist"] {
            needed.extend(
                files(&folder.join(part)).iter().map(|path| path.strip_prefix(folder).unwrap().display().to_string()),
            );
        }
        for needed in needed {
            assert!(list.lines().any(|line| line.ends_with(&format!("/{needed}"))), "{file} lacks {needed}:\n{list}");
        }
    }
}

/// For users without Rust.
#[test]
fn the_program_is_packed_with_its_papers() {
    let target = tempfile::tempdir().unwrap();
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--locked", "--workspace", "--all-features", "--bin", "fencelock"]);
    let output = build.args(["--message-format", "json"]).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let messages = String::from_utf8_lossy(&output.stdout).into_owned();
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let program = messages.filter_map(|message| message["executable"].as_str().map(str::to_owned)).next_back().unwrap();

    let packed = Command::new(root().join("crates/cli/dist")).arg(program).arg(target.path()).output().unwrap();
    let (said, errors) = (String::from_utf8_lossy(&packed.stdout), String::from_utf8_lossy(&packed.stderr));
    assert!(packed.status.success(), "{errors}");
    let list = Command::new("tar").arg("-tf").arg(said.trim()).output().unwrap();
    let list = String::from_utf8_lossy(&list.stdout);
    for needed in [
        "bin/fencelock",
        "share/man/man1/fencelock.1",
        "share/man/man1/fencelock-run.1",
        "share/bash-completion/completions/fencelock",
        "share/zsh/site-functions/_fencelock",
        "share/fish/vendor_completions.d/fencelock.fish",
        "share/doc/fencelock/LICENSE-MIT",
    ] {
        assert!(list.lines().any(|line| line.ends_with(needed)), "{needed} is not among\n{list}");
    }
}
