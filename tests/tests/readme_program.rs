//! The README's program runs: on a SQLite file as it stands there, and on Redis with another URL.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test")]

use fencelock_lab::Redis;
use std::sync::Mutex;

/// As it stands in the README, but for the URL, which is [`url`]; `build.rs` cuts it out.
mod program {
    #![allow(clippy::print_stdout, reason = "it is for people to read")]
    include!(concat!(env!("OUT_DIR"), "/readme.rs"));
}

static URL: Mutex<String> = Mutex::new(String::new());

fn url() -> String {
    URL.lock().unwrap().clone()
}

#[test]
fn the_program_of_the_readme_locks_on_sqlite_and_on_redis() {
    // It opens its file where it is started, and this is the only test here.
    let folder = tempfile::tempdir().unwrap();
    std::env::set_current_dir(&folder).unwrap();
    "sqlite:locks.db".clone_into(&mut URL.lock().unwrap());
    program::main().unwrap();
    assert!(folder.path().join("locks.db").exists(), "where its locks are is its own URL");

    let redis = Redis::start().unwrap();
    *URL.lock().unwrap() = format!("redis://{}", redis.address());
    program::main().unwrap();
    let keys = redis.command(&["KEYS", "*"]).unwrap();
    assert!(keys.contains("fence"), "its tokens are counted there: {keys}");
    std::env::set_current_dir("/").unwrap();
}
