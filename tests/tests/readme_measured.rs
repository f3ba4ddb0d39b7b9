//! Every figure of what was measured comes from the runs that are kept in `measured/`.
//!
//! `FENCELOCK_KEEP=1 cargo test -p fencelock-tests --test readme_measured` writes the README's parts.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test")]

use fencelock_tests::measured::{between, parts, quickest, replaced, root};

#[test]
fn what_the_readme_says_of_runs_is_what_came_of_them() {
    let file = root().join("README.md");
    let mut text = std::fs::read_to_string(&file).unwrap();
    for (name, right) in parts().unwrap() {
        if std::env::var_os("FENCELOCK_KEEP").is_some() {
            text = replaced(&text, name, &right).unwrap();
            continue;
        }
        assert_eq!(
            between(&text, name).unwrap(),
            right,
            "between the marks `{name}` the README should say:\n\n{right}"
        );
    }
    if std::env::var_os("FENCELOCK_KEEP").is_some() {
        std::fs::write(file, text).unwrap();
    }
}

/// Outside the marks there is no figure that could be wrong.
#[test]
fn no_figure_stands_beside_the_marks() {
    let text = std::fs::read_to_string(root().join("README.md")).unwrap();
    for (section, names) in
        [("## What it costs", &["costs"] as &[_]), ("## Shown on real servers", &["shown", "mixed"])]
    {
        let (_, section) = text.split_once(section).unwrap();
        let (section, _) = section.split_once("\n## ").unwrap();
        let rest = names.iter().fold(section.to_owned(), |text, name| replaced(&text, name, "").unwrap());
        // What is between backticks is a command.
        let said: String = rest.split('`').step_by(2).collect();
        let figure = said.find(|c: char| c.is_ascii_digit());
        assert_eq!(figure, None, "{section}: a figure that no file supports: {rest}");
    }
}

/// As the README says of it, where it chooses an engine.
#[test]
fn redis_is_the_quickest_of_the_services() {
    let text = std::fs::read_to_string(root().join("README.md")).unwrap();
    assert!(text.contains("the quickest of the services"));
    assert_eq!(quickest().unwrap().as_deref(), Some("redis"));
}

#[test]
fn what_is_kept_is_small_and_names_no_machine() {
    for entry in std::fs::read_dir(root().join("measured")).unwrap() {
        let file = entry.unwrap().path();
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.len() < 300_000, "{}: {} bytes", file.display(), text.len());
        for place in ["/home/", "/root/", "/work/", "/tmp/", "/var/"] {
            assert!(!text.contains(place), "{}: {place}", file.display());
        }
    }
}
