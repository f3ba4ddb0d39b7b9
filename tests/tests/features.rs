//! Cargo features: what each brings, and that it brings nothing of an engine that was not chosen.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// A feature, what it is for, and the crates that are its own: none of them comes without it.
struct Feature {
    name: &'static str,
    about: &'static str,
    brings: &'static [&'static str],
}

const fn feature(name: &'static str, about: &'static str, brings: &'static [&'static str]) -> Feature {
    Feature { name, about, brings }
}

const FEATURES: [Feature; 9] = [
    feature("sqlite", "a SQLite file; the default", &["fencelock-sql", "sqlx-sqlite", "libsqlite3-sys"]),
    feature("postgres", "PostgreSQL", &["fencelock-sql", "sqlx-postgres"]),
    feature("mysql", "MySQL and MariaDB", &["fencelock-sql", "sqlx-mysql"]),
    feature("redis", "Redis: one server, Sentinel or Cluster", &["fencelock-redis", "redis"]),
    feature("redlock", "independent Redis nodes", &["fencelock-redlock", "fencelock-redis", "redis"]),
    feature("etcd", "etcd", &["fencelock-etcd", "etcd-client", "tonic", "prost"]),
    feature("zookeeper", "Apache ZooKeeper", &["fencelock-zookeeper", "zookeeper-client"]),
    feature("tls", "TLS for the engines that are chosen", &["rustls"]),
    feature("metrics", "counters and histograms through the crate `metrics`", &["metrics"]),
];

/// What a crate needs when it is built.
const NEEDS: [(&str, &str); 3] = [
    ("libsqlite3-sys", "a C compiler"),
    ("aws-lc-sys", "a C compiler"),
    ("prost-build", "protoc and its include files"),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The crates that the facade is built from with these features; build tools too, with `edges` of `normal,build`.
fn crates(features: &str, edges: &str) -> BTreeSet<String> {
    let mut tree = Command::new(env!("CARGO"));
    tree.current_dir(root()).args(["tree", "--locked", "--offline", "--package", "fencelock", "--no-default-features"]);
    tree.args(["--features", features, "--edges", edges, "--prefix", "none", "--format", "{p}"]);
    let output = tree.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn what_is_not_chosen_brings_nothing() {
    let brought_by = |chosen: &[&str]| -> BTreeSet<&str> {
        FEATURES
            .iter()
            .filter(|feature| chosen.contains(&feature.name))
            .flat_map(|feature| feature.brings)
            .copied()
            .collect()
    };
    let every: BTreeSet<_> = FEATURES.iter().flat_map(|feature| feature.brings).copied().collect();
    let all: Vec<_> = FEATURES.iter().map(|feature| feature.name).collect();
    let mut choices = vec![vec![], all];
    for feature in &FEATURES {
        choices.extend([vec![feature.name], vec![feature.name, "tls"], vec![feature.name, "sqlite", "tls"]]);
    }
    for chosen in choices {
        let crates = crates(&chosen.join(","), "normal");
        for name in &every {
            let serverless =
                *name == "rustls" && chosen.iter().all(|feature| matches!(*feature, "sqlite" | "tls" | "metrics"));
            let expected = brought_by(&chosen).contains(name) && !serverless;
            assert_eq!(crates.contains(*name), expected, "{name}, with {chosen:?}");
        }
    }
}

#[test]
fn the_default_is_sqlite_and_the_command_line_has_the_same_features() {
    let features = |package: &str| {
        let text = std::fs::read_to_string(root().join(package).join("Cargo.toml")).unwrap();
        let (_, rest) = text.split_once("[features]\n").unwrap();
        let lines = rest.lines().take_while(|line| !line.starts_with('[')).filter(|line| line.contains(" = "));
        lines.map(|line| line.split(" = ").next().unwrap().to_owned()).collect::<BTreeSet<_>>()
    };
    let expected: BTreeSet<_> =
        FEATURES.iter().map(|feature| feature.name).chain(["default"]).map(str::to_owned).collect();
    assert_eq!(features("crates/fencelock"), expected);
    let manifest = std::fs::read_to_string(root().join("crates/fencelock/Cargo.toml")).unwrap();
    assert!(manifest.contains("default = [\"sqlite\"]"));
    let missing: Vec<_> = expected.difference(&features("crates/cli")).cloned().collect();
    assert!(missing.iter().all(|feature| feature == "metrics"), "the command line lacks {missing:?}");
}

/// On a difference the right table is printed; with `FENCELOCK_KEEP=1` it is written.
#[test]
fn the_readme_says_what_each_feature_needs() {
    let mut table = String::from("| feature | for | needs to build, besides Rust |\n|---|---|---|\n");
    for feature in &FEATURES {
        // By itself `tls` is for no engine; Redis needs nothing more of its own.
        let chosen = if feature.name == "tls" { "tls,redis" } else { feature.name };
        let crates = crates(chosen, "normal,build");
        let needs: BTreeSet<_> =
            NEEDS.iter().filter(|(name, _)| crates.contains(*name)).map(|(_, needed)| *needed).collect();
        let compiles = crates.contains("cc") || crates.contains("cmake");
        assert_eq!(compiles, needs.contains("a C compiler"), "{}: {crates:?}", feature.name);
        let needs = if needs.is_empty() { "–".to_owned() } else { needs.into_iter().collect::<Vec<_>>().join(", ") };
        writeln!(table, "| `{}` | {} | {needs} |", feature.name, feature.about).unwrap();
    }
    let readme = root().join("README.md");
    let text = std::fs::read_to_string(&readme).unwrap();
    let (begin, end) = ("<!-- features:begin -->\n", "<!-- features:end -->");
    let (before, rest) = text.split_once(begin).unwrap();
    let (there, after) = rest.split_once(end).unwrap();
    if std::env::var_os("FENCELOCK_KEEP").is_some() {
        std::fs::write(&readme, [before, begin, &table, end, after].concat()).unwrap();
        return;
    }
    assert_eq!(there, table, "the README should say:\n\n{table}");
}
