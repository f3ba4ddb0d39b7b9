//! What the README says is what the engines say of themselves.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs, reason = "a test")]

use fencelock_core::guarantee_table;
use std::path::Path;

/// Compares what stands between two marks with what should; with `FENCELOCK_KEEP=1` it is written.
fn compare(name: &str, right: &str) {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("README.md");
    let text = std::fs::read_to_string(&readme).unwrap();
    let (begin, end) = (format!("<!-- {name}:begin -->\n"), format!("<!-- {name}:end -->"));
    let (before, rest) = text.split_once(&begin).unwrap();
    let (there, after) = rest.split_once(&end).unwrap();
    if std::env::var_os("FENCELOCK_KEEP").is_some() {
        std::fs::write(&readme, [before, &begin, right, &end, after].concat()).unwrap();
        return;
    }
    assert_eq!(there, right, "the README should say:\n\n{right}");
}

/// The deployments are those that `levels` starts.
#[test]
fn the_guarantee_table_is_what_the_engines_say() {
    compare("guarantees", &guarantee_table(&fencelock::deployments()));
}
