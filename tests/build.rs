//! Cuts the README's program out, for a test that runs it.

use std::path::PathBuf;
use std::{env, fs};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let readme = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../README.md");
    println!("cargo::rerun-if-changed={}", readme.display());
    let text = fs::read_to_string(readme)?;
    let used = text.split_once("\n## Use\n").ok_or("the README has no section `Use`")?.1;
    let program = used.split_once("```rust,no_run\n").ok_or("no program in it")?.1;
    let program = program.split_once("```").ok_or("a program without an end")?.0;
    // Where the locks are is all that differs.
    let program =
        program.replace("\"sqlite:locks.db\"", "&super::url()").replace("async fn main", "pub(super) async fn main");
    Ok(fs::write(PathBuf::from(env::var("OUT_DIR")?).join("readme.rs"), program)?)
}
