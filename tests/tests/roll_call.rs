//! Every engine of the workspace runs the whole contract suite.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs, reason = "a test")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Cargo features of the facade that are no engines.
const NO_ENGINES: [&str; 3] = ["default", "tls", "metrics"];

struct Package {
    name: String,
    directory: PathBuf,
    features: Vec<String>,
    tests: Vec<(String, PathBuf)>,
}

fn workspace() -> Vec<Package> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--locked", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let packages = metadata["packages"].as_array().unwrap();
    packages
        .iter()
        .map(|package| Package {
            name: text(&package["name"]),
            directory: Path::new(&text(&package["manifest_path"])).parent().unwrap().to_owned(),
            features: package["features"].as_object().unwrap().keys().cloned().collect(),
            tests: package["targets"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|target| target["kind"][0] == "test")
                .map(|target| (text(&target["name"]), text(&target["src_path"]).into()))
                .collect(),
        })
        .collect()
}

/// The engines: those that the facade has a feature for, and the one in memory that it always has.
fn engines(packages: &[Package]) -> Vec<String> {
    let facade = packages.iter().find(|package| package.name == "fencelock").unwrap();
    let mut engines: Vec<_> =
        facade.features.iter().filter(|feature| !NO_ENGINES.contains(&feature.as_str())).cloned().collect();
    engines.push("memory".to_owned());
    engines
}

#[test]
fn every_engine_runs_the_whole_suite() {
    let packages = workspace();
    for engine in engines(&packages) {
        let name = format!("const NAME: &'static str = \"{engine}\"");
        let suites: Vec<_> = packages
            .iter()
            // The suite's own tests run it on engines of others too.
            .filter(|package| package.name != "fencelock-testkit")
            .flat_map(|package| package.tests.iter().map(move |test| (package, test)))
            .filter(|(_, (_, source))| {
                let source = std::fs::read_to_string(source).unwrap();
                source.contains(&name) && source.contains("fencelock_testkit::main::<")
            })
            .collect();
        assert_eq!(suites.len(), 1, "`{engine}`: one test runs the contract suite, found {}", suites.len());
        let (package, (test, _)) = suites[0];
        let manifest = std::fs::read_to_string(package.directory.join("Cargo.toml")).unwrap();
        let section = manifest
            .split("[[")
            .find(|section| section.starts_with("test]]") && section.contains(&format!("name = \"{test}\"")));
        let section = section.unwrap_or_else(|| panic!("{}: no [[test]] named {test}", package.name));
        assert!(section.contains("harness = false"), "{}: without its own main the suite runs nothing", package.name);
        let run = std::fs::read_to_string(
            package.directory.ancestors().find(|d| d.join(".ci").exists()).unwrap().join("tests/run"),
        );
        assert!(run.unwrap().contains(&format!("\"{engine} ")), "tests/run knows no engine `{engine}`");
    }
}

#[test]
fn every_implementation_of_the_trait_is_in_a_crate_with_a_suite() {
    for package in workspace() {
        let sources = sources(&package.directory.join("src"));
        let implements = sources.iter().any(|file| {
            std::fs::read_to_string(file)
                .unwrap()
                .lines()
                .any(|line| line.starts_with("impl") && line.contains("DistributedLock for"))
        });
        if implements {
            let has = package.tests.iter().any(|(name, _)| name.starts_with("contract"));
            assert!(has, "{} implements DistributedLock and has no tests/contract.rs", package.name);
        }
    }
}

fn sources(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

#[test]
fn files_are_small() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut lines: Vec<_> = ["crates", "examples", "tests"]
        .iter()
        .flat_map(|directory| sources(&root.join(directory)))
        .filter(|file| !file.components().any(|part| part.as_os_str() == "target"))
        .map(|file| (std::fs::read_to_string(&file).unwrap().lines().count(), file))
        .collect();
    lines.sort();
    let (median, _) = &lines[lines.len() / 2];
    assert!(*median <= 150, "the median file has {median} lines");
    let (most, file) = lines.last().unwrap();
    assert!(*most <= 500, "{} has {most} lines", file.display());
}
