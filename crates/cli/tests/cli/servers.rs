//! Locks on servers: stolen there, and the codes of a service that does not answer or lets nobody in.

use crate::history::stolen_from;
use crate::support::Place;
#[cfg(any(feature = "redis", feature = "redlock"))]
use crate::support::output;

#[cfg(feature = "etcd")]
#[test]
fn stolen_on_etcd() {
    let etcd = fencelock_lab::Etcd::start().unwrap();
    // Debian 12's version is refused nothing here: the least level will do.
    stolen_from(&Place::at(format!("etcd://{}", etcd.endpoint(0).unwrap())), "--ttl 60s");
}

#[cfg(feature = "mysql")]
#[test]
fn stolen_on_mariadb() {
    let server = fencelock_lab::MariaDb::start().unwrap();
    stolen_from(&Place::at(server.url()), "--ttl 60s");
}

#[cfg(feature = "postgres")]
#[test]
fn stolen_on_postgres() {
    let server = fencelock_lab::Postgres::start().unwrap();
    stolen_from(&Place::at(server.url()), "--ttl 60s");
}

#[cfg(feature = "redis")]
#[test]
fn stolen_on_redis() {
    let server = fencelock_lab::Redis::start().unwrap();
    stolen_from(&Place::at(format!("redis://{}", server.address())), "--ttl 60s");
}

#[cfg(feature = "redlock")]
#[test]
fn stolen_on_redlock() {
    let nodes = fencelock_lab::RedisNodes::start(3).unwrap();
    let place = Place::at(format!("redlock://{}", nodes.addresses()));
    assert_eq!(output(place.fencelock(["redlock", "init"])).code, Some(0));
    // The next renewal tells it, after a third of the ttl.
    stolen_from(&place, "--ttl 12s");
}

#[cfg(feature = "zookeeper")]
#[test]
fn stolen_on_zookeeper() {
    let server = fencelock_lab::ZooKeeper::start().unwrap();
    stolen_from(&Place::at(format!("zookeeper://{}", server.address())), "");
}

#[cfg(feature = "redis")]
#[test]
fn a_service_that_is_not_there_or_lets_nobody_in() {
    let server = fencelock_lab::Redis::start_with(["--user", "app", "on", ">s3cr3t", "~*", "&*", "+@all"]).unwrap();
    let gone = fencelock_lab::free_port();
    for (url, code) in [
        (format!("redis://127.0.0.1:{gone}"), 69),
        (format!("redis://app:wr0ng@{}", server.address()), 77),
        (format!("redis://app:s3cr3t@{}", server.address()), 5),
    ] {
        let place = Place::at(url);
        for args in [&["run", "n", "--", "sh", "-c", "exit 5"][..], &["status", "n"]] {
            let mut command = place.fencelock(args);
            command.env("FENCELOCK_LOG", "trace");
            let said = output(command);
            let right = if code == 5 && args[0] == "status" { 0 } else { code };
            assert_eq!(said.code, Some(right), "{}", said.stderr);
            assert!(!["s3cr3t", "wr0ng"].iter().any(|secret| said.stderr.contains(secret)), "{}", said.stderr);
        }
    }
}
