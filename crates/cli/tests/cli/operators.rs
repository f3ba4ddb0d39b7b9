//! What operators ask.

use crate::support::{Place, output, start, until};

fn held(place: &Place) -> crate::support::Running {
    let script = "touch running; until test -e stop; do sleep 0.01; done";
    let running = start(place.run("--holder somebody --note request-7", "orders/1", script));
    until("the holder", || place.path("running").exists());
    running
}

#[test]
fn status_and_list_show_the_holder() {
    let place = Place::new();
    let _holder = held(&place);
    for args in [&["status", "orders/1"][..], &["status", "--json", "orders/1"], &["list"], &["list", "--json", "ord"]]
    {
        let said = output(place.fencelock(args));
        assert_eq!(said.code, Some(0));
        for part in ["orders/1", "somebody", "request-7"] {
            assert!(said.stdout.contains(part), "{args:?}: {}", said.stdout);
        }
    }
    assert_eq!(output(place.fencelock(["list", "other"])).stdout, "");
    assert_eq!(output(place.fencelock(["status", "--exit-code", "orders/1"])).code, Some(0));
}

#[test]
fn a_free_lock_is_free() {
    let place = Place::new();
    assert_eq!(output(place.fencelock(["status", "n"])).stdout, "n: nobody holds it\n");
    assert_eq!(output(place.fencelock(["status", "n", "--exit-code"])).code, Some(1));
    assert_eq!(output(place.fencelock(["release", "--force", "--yes", "n"])).stdout, "n: nobody holds it\n");
}

/// The lock delay of a hold that was taken away: nobody holds the lock, and nobody is granted it.
#[test]
fn a_closed_lock_is_not_called_free() {
    let place = Place::new();
    let script = "touch running; sleep 60";
    let mut holder = start(place.run("--kill-after 30s", "n", script));
    until("the holder", || place.path("running").exists());
    assert_eq!(output(place.fencelock(["release", "--force", "--yes", "n"])).stdout, "n: released\n");
    assert_eq!(holder.code(), Some(76));
    for wait in ["--no-wait", "--wait 2s"] {
        let refused = output(place.run(wait, "n", "touch ran"));
        assert_eq!(refused.code, Some(75));
        for part in ["nobody holds it now", "lock delay"] {
            assert!(refused.stderr.contains(part), "{wait}: {}", refused.stderr);
        }
    }
    let said = output(place.fencelock(["status", "n"]));
    assert_eq!(said.stdout, "n: nobody holds it\n", "and not that it is free");
    assert!(!place.path("ran").exists());
}

#[test]
fn release_asks_first() {
    let place = Place::new();
    let _holder = held(&place);
    let said = output(place.fencelock(["release", "--force", "orders/1"]));
    assert_eq!(said.code, Some(64), "there is nobody to ask");
    assert!(said.stderr.contains("--yes"), "{}", said.stderr);
    assert!(place.is_held("orders/1"));
}

#[test]
fn check_shows_every_rule() {
    let place = Place::new();
    let said = output(place.fencelock(["check", "--json", "--require", "fenced"]));
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    for part in
        ["\"engine\": \"sqlite\"", "\"level\": \"fenced\"", "\"assumptions\"", "\"capabilities\"", "\"deployment\""]
    {
        assert!(said.stdout.contains(part), "{part}: {}", said.stdout);
    }
    for part in ["\"rule\": \"sqlite.synchronous\"", "\"outcome\": \"proved\"", "\"reason\"", "\"fix\""] {
        assert!(said.stdout.contains(part), "{part}: {}", said.stdout);
    }
    let said = output(place.fencelock(["check", "--require", "replicated"]));
    assert_eq!(said.code, Some(79));
    assert!(said.stdout.contains("sqlite.one_host") && said.stderr.contains("replicated"));
}

#[test]
fn check_shows_the_rules_of_what_is_refused_for_any_reason() {
    let place = Place::new();
    for (name, value) in [
        ("FENCELOCK_ATTEST", "sqlite.one_host"),
        ("FENCELOCK_REQUIRE_CAPABILITY", "push_loss"),
        ("FENCELOCK_FORBID", "T4"),
    ] {
        let mut command = place.fencelock(["check"]);
        command.env(name, value);
        let said = output(command);
        assert_eq!(said.code, Some(79), "{name}: {}", said.stderr);
        assert!(said.stdout.contains("sqlite.one_host"), "{name}: {}", said.stdout);
        assert!(!said.stderr.is_empty(), "{name}");
    }
}

#[cfg(feature = "redis")]
#[test]
fn check_shows_the_rules_of_what_gives_no_level() {
    let redis =
        fencelock_lab::Redis::start_with(["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]).unwrap();
    let place = Place::at(format!("redis://{}", redis.address()));
    let said = output(place.fencelock(["check"]));
    assert_eq!(said.code, Some(79), "{}", said.stderr);
    for part in ["redis.eviction", "none", "redis.persistence", "fix: "] {
        assert!(said.stdout.contains(part), "{part}: {}", said.stdout);
    }
}

#[test]
fn the_papers_are_written() {
    let place = Place::new();
    assert!(output(place.fencelock(["completions", "bash"])).stdout.contains("fencelock"));
    assert_eq!(output(place.fencelock(["man", "."])).code, Some(0));
    assert!(place.read("fencelock-run.1").contains("FENCELOCK_TOKEN"));
    assert!(output(place.fencelock(["guarantees"])).stdout.contains("fenced"));
    assert!(place.read("fencelock-run.1").contains("> \\-\\- <\\fICOMMAND\\fR>..."));
    let table = output(place.fencelock(["guarantees", "--json"])).stdout;
    let engines = [
        ("memory", true),
        ("sqlite", true),
        ("etcd", cfg!(feature = "etcd")),
        ("redis", cfg!(feature = "redis")),
        ("redlock", cfg!(feature = "redlock")),
        ("zookeeper", cfg!(feature = "zookeeper")),
    ];
    for (engine, is_here) in engines {
        assert_eq!(table.contains(&format!("\"engine\": \"{engine}\"")), is_here, "{engine}");
    }
}
