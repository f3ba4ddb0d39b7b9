//! Peers of other runtimes: a small program each in `peers/`, run with what
//! `peers/install` has put into `target/bench-peers`.

use crate::contender::outside::Program;
use crate::failure::Result;
use std::path::{Path, PathBuf};

/// The program of this peer, if it is one.
pub(super) fn program(who: &str) -> Option<Result<Program>> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
    let source = |name: &str| sources.join(name).display().to_string();
    let found = |what: PathBuf, words: Vec<String>, environment: Vec<(String, String)>| {
        if what.exists() {
            Ok(Program { words, environment })
        } else {
            Err(format!("{} is not there; crates/bench/peers/install puts it there", what.display()).into())
        }
    };
    let installed = installed();
    let python = installed.join("python/bin/python3");
    let python_words = |file: &str| vec![python.display().to_string(), "-u".to_owned(), source(file)];
    let modules = installed.join("node/node_modules");
    let classes = installed.join("java");
    Some(match who {
        "redis-py Lock" => found(python.clone(), python_words("redis_py.py"), Vec::new()),
        "kazoo" => found(python.clone(), python_words("kazoo_lock.py"), Vec::new()),
        "redlock (npm)" => {
            let path = vec![("NODE_PATH".to_owned(), modules.display().to_string())];
            found(modules.join("redlock"), vec!["node".to_owned(), source("redlock.cjs")], path)
        }
        "Curator" => {
            let jars = std::fs::read_to_string(classes.join("classpath")).unwrap_or_default();
            let path = format!("{}:{}", classes.display(), jars.trim());
            let words = ["java", "-XX:+UseSerialGC", "-Xmx256m", "-cp", &path, "CuratorLock"];
            found(classes.join("CuratorLock.class"), words.map(str::to_owned).to_vec(), Vec::new())
        }
        _ => return None,
    })
}

/// Beside what cargo builds.
fn installed() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let target = program.ancestors().find(|folder| folder.ends_with("target")).map(Path::to_owned);
    target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target")).join("bench-peers")
}
