use super::*;
use crate::{Config, Registry};
use std::time::Duration;

/// Every answer to every question, with each service alone, none, and two together.
fn needs() -> Vec<Need> {
    let mut services: Vec<_> = Service::ALL.map(|service| vec![service]).to_vec();
    services.extend([vec![], vec![Service::RedisFailover, Service::Postgres], vec![Service::Redis, Service::Etcd]]);
    let mut needs = Vec::new();
    for double_run in DoubleRun::ALL {
        for check in ResourceCheck::ALL {
            for services in &services {
                for work in [0, 1, 60, 3_600, u64::MAX] {
                    for (one_host, stays_up) in [(false, false), (true, false), (false, true), (true, true)] {
                        let (services, work) = (services.clone(), Duration::from_secs(work));
                        needs.push(Need { double_run, check, services, work, one_host, stays_up });
                    }
                }
            }
        }
    }
    needs
}

#[test]
fn what_is_recommended_was_seen_to_give_the_level() {
    for need in needs() {
        let advised = recommend(&need);
        assert!(!advised.advice().is_empty(), "{need:?}");
        match (advised.level(), advised.deployment()) {
            (Some(level), Some(found)) => {
                assert!(found.level() >= Some(level), "{need:?}: {found:?}");
                assert_eq!(advised.engine(), Some(found.engine()));
            }
            (None, None) => assert!(advised.advice()[0].starts_with("You need no lock"), "{need:?}: {advised:?}"),
            odd => panic!("{need:?}: {odd:?}"),
        }
    }
}

#[test]
fn every_snippet_is_a_right_file() {
    for need in needs() {
        let advised = recommend(&need);
        if advised.needs_lock() {
            let read = Config::from_toml(advised.toml(), "fencelock.toml");
            assert!(read.is_ok(), "{need:?}: {read:?}");
            assert!(advised.toml().contains(&format!("require = \"{}\"", advised.level().unwrap())));
            assert!(advised.dependency().contains("features = [") && !advised.code().is_empty());
        } else {
            assert_eq!((advised.toml(), advised.dependency(), advised.code()), Default::default());
        }
    }
}

#[test]
fn schemes_and_features_are_those_of_the_registry() {
    let engines = Registry::builtin().engines();
    for need in needs() {
        if let Some(engine) = recommend(&need).engine() {
            assert!(engines.iter().any(|known| known == engine), "{engine}");
        }
    }
}

fn engine(need: &Need) -> (Option<String>, Option<Level>) {
    let advised = recommend(need);
    (advised.engine().map(str::to_owned), advised.level())
}

fn is(engine: &str, level: Level) -> (Option<String>, Option<Level>) {
    (Some(engine.to_owned()), Some(level))
}

#[test]
fn what_runs_is_taken_where_it_gives_enough() {
    let (waste, wrong) = (Need::new(DoubleRun::Waste), Need::new(DoubleRun::Wrong).with_check(ResourceCheck::Token));
    assert_eq!(engine(&waste), is("redis", Level::Advisory));
    assert_eq!(engine(&waste.clone().with_service(Service::Postgres)), is("postgres", Level::Advisory));
    assert_eq!(engine(&waste.on_one_host()), is("sqlite", Level::Advisory));
    assert_eq!(engine(&wrong), is("postgres", Level::Fenced));
    assert_eq!(engine(&wrong.clone().with_service(Service::Redis)), is("redis", Level::Fenced));
    let failover = wrong.clone().with_service(Service::RedisFailover);
    assert_eq!(engine(&failover), is("postgres", Level::Fenced));
    assert!(recommend(&failover).advice()[0].contains("redis gives advisory at most (replication is asynchronous"));
    assert_eq!(engine(&wrong.clone().staying_up()), is("etcd", Level::Replicated));
    let zookeeper = wrong.staying_up().with_service(Service::ZooKeeper);
    assert_eq!(engine(&zookeeper), is("zookeeper", Level::Replicated));
}

/// What stands in the file gives the level where it was tried, and is told in words that stand alone.
#[test]
fn what_is_attested_stands_in_the_file() {
    for need in needs() {
        let advised = recommend(&need);
        let Some(found) = advised.deployment() else { continue };
        assert!(!found.deployment().contains("the same") && !found.deployment().contains("above"), "{found:?}");
        let only_attested = found.deployment().ends_with("` attested") && !found.deployment().contains(", or `");
        assert_eq!(advised.toml().contains("attest = ["), only_attested, "{need:?}: {}", advised.toml());
    }
    let standby = Need::new(DoubleRun::Wrong).with_service(Service::Postgres).staying_up();
    let advised = recommend(&standby);
    assert_eq!(engine(&standby), is("postgres", Level::Replicated));
    assert!(advised.toml().contains("attest = [\"postgres.failover\"]"), "{}", advised.toml());
    assert!(advised.advice().iter().any(|said| said.contains("your word")), "{advised:?}");
}

#[test]
fn on_one_host_there_is_no_server_to_lose() {
    let wrong = Need::new(DoubleRun::Wrong).with_check(ResourceCheck::Token).on_one_host();
    assert_eq!(engine(&wrong.clone().staying_up()), is("sqlite", Level::Fenced));
    let moved = wrong.with_check(ResourceCheck::Transaction).with_service(Service::Postgres).staying_up();
    assert_eq!(engine(&moved), is("postgres", Level::Replicated));
}

#[test]
fn a_resource_that_checks_nothing_is_told_so() {
    let advised = recommend(&Need::new(DoubleRun::Wrong).with_service(Service::Postgres));
    assert!(advised.advice().iter().any(|said| said.starts_with("No lock can promise this alone")), "{advised:?}");
    assert!(advised.toml().contains("lock_delay"));
    let session = recommend(&Need::new(DoubleRun::Wrong).with_service(Service::ZooKeeper)).toml();
    assert!(session.contains("ttl = \"25s\"") && session.contains("lock_delay = \"5s\""), "{session}");
    let key = Need::new(DoubleRun::Wrong).with_check(ResourceCheck::UniqueKey);
    assert!(!recommend(&key).needs_lock());
    let moved = Need::new(DoubleRun::Wrong).with_check(ResourceCheck::Transaction).with_service(Service::MySql);
    assert!(recommend(&moved).code().contains("acquire_in"));
    // What the code does not read is not said to it.
    let file = recommend(&moved).toml();
    for key in ["ttl", "wait_at_most", "max_hold", "lock_delay", "on_degraded", "reprobe"] {
        assert!(!file.contains(key), "{file}");
    }
    assert!(!recommend(&moved).advice().iter().any(|said| said.contains("max_hold")));
    let elsewhere = Need::new(DoubleRun::Wrong).with_check(ResourceCheck::Transaction).with_service(Service::Redis);
    assert!(!recommend(&elsewhere).code().contains("acquire_in"));
}
