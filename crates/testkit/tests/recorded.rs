//! Histories that real servers gave, and what is wrong with them: what was found once is found for ever.

use fencelock_testkit::history::Property::{self, E1, E2, G1, G2, K1, K2, R1};
use fencelock_testkit::history::check::{Limits, check};
use fencelock_testkit::history::read;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A file, what it breaks, and what was asked in it and holds.
type Recorded = (&'static str, &'static [Property], &'static [Property]);

const ALL: &[Recorded] = &[
    // A replica that has not heard of the lock is promoted: both hold for a third of a second.
    ("redis-sentinel-failed-over.jsonl", &[E1, E2], &[K1, K2]),
    // A follower that is cut off from its leader answers for longer than the session lasts.
    ("zookeeper-session-4s-follower-cut.jsonl", &[E1, E2], &[K1, K2]),
    // A majority of five clocks jump forward: two hold, an update that only the lock guards is lost, tokens grow.
    ("redlock-clocks-forward.jsonl", &[E1, E2, G2], &[K1, K2]),
    // An engine of ours once counted a session from a heartbeat that its follower had not passed on: with a session of
    // 15 s the next was granted after 15.6 s, and the holder believed until 17.3 s. Rebuilt from what was measured.
    ("zookeeper-validity-after-a-silence.jsonl", &[E1, E2], &[K1, K2]),
    // A holder is stopped for longer than its ttl, and all is well.
    ("redis-holder-stopped.jsonl", &[], &[E1, E2, K1, K2, G1, R1]),
    // The same on etcd, and a counter that nothing guards but the lock.
    ("etcd-open-counter.jsonl", &[G2], &[E1, E2, K1, K2, R1]),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded")
}

#[test]
fn each_is_judged_as_it_was() {
    for (file, breaks, holds) in ALL {
        let events = read([folder().join(file)]).unwrap();
        let said = check(&events, Limits::new(Duration::from_secs(60)));
        for property in *breaks {
            assert!(said.breaks(*property), "{file}: {property} is not found broken\n{said}");
        }
        for property in *holds {
            assert!(said.of(*property).unwrap().holds(), "{file}: {property} does not hold\n{said}");
        }
    }
}

#[test]
fn none_is_forgotten() {
    let mut found: Vec<_> =
        std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let mut named: Vec<_> = ALL.iter().map(|(file, ..)| (*file).to_owned()).collect();
    found.sort();
    named.sort();
    assert_eq!(found, named);
}
