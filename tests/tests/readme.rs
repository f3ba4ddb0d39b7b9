//! What the README says is what the engines say of themselves.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs, reason = "a test")]

use fencelock_core::guarantee_table;
use std::path::Path;

fn readme() -> String {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("README.md");
    std::fs::read_to_string(readme).unwrap()
}

fn part<'t>(text: &'t str, name: &str) -> &'t str {
    let (begin, end) = (format!("<!-- {name}:begin -->\n"), format!("<!-- {name}:end -->"));
    text.split_once(&begin).unwrap().1.split_once(&end).unwrap().0
}

/// The deployments are those that `levels` starts; on a difference the right table is printed, to be copied.
#[test]
fn the_guarantee_table_is_what_the_engines_say() {
    let table = guarantee_table(&fencelock::deployments());
    assert_eq!(part(&readme(), "guarantees"), table, "the README should say:\n\n{table}");
}
