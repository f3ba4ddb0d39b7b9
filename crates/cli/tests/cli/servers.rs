//! Locks on servers: stolen there, and the codes of a service that does not answer or lets nobody in. The grace, for which
//! the lock stays closed, is time for a busy machine to hear of it: it is not waited for.

use crate::history::stolen_from;
use crate::support::{Place, output};

#[cfg(feature = "etcd")]
#[test]
fn stolen_on_etcd() {
    let etcd = fencelock_lab::Etcd::start().unwrap();
    // Debian 12's version is refused nothing here: the least level will do.
    stolen_from(&Place::at(format!("etcd://{}", etcd.endpoint(0).unwrap())), "--ttl 60s --kill-after 5s");
}

#[cfg(feature = "mysql")]
#[test]
fn stolen_on_mariadb() {
    let server = fencelock_lab::MariaDb::start().unwrap();
    stolen_from(&Place::at(server.url()), "--ttl 60s --kill-after 5s");
}

#[cfg(feature = "postgres")]
#[test]
fn stolen_on_postgres() {
    let server = fencelock_lab::Postgres::start().unwrap();
    stolen_from(&Place::at(server.url()), "--ttl 60s --kill-after 5s");
}

#[cfg(feature = "redis")]
#[test]
fn stolen_on_redis() {
    let server = fencelock_lab::Redis::start().unwrap();
    stolen_from(&Place::at(format!("redis://{}", server.address())), "--ttl 60s --kill-after 5s");
}

#[cfg(feature = "redlock")]
#[test]
fn stolen_on_redlock() {
    let nodes = fencelock_lab::RedisNodes::start(3).unwrap();
    let place = Place::at(format!("redlock://{}", nodes.addresses()));
    assert_eq!(output(place.fencelock(["redlock", "init"])).code, Some(0));
    // The next renewal tells it, after a third of the ttl.
    stolen_from(&place, "--ttl 12s --kill-after 5s");
}

#[cfg(feature = "zookeeper")]
#[test]
fn stolen_on_zookeeper() {
    let server = fencelock_lab::ZooKeeper::start().unwrap();
    stolen_from(&Place::at(format!("zookeeper://{}", server.address())), "--kill-after 5s");
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

#[cfg(feature = "redis")]
#[test]
fn cut_off_from_redis() {
    use fencelock_lab::{Mood, Proxy};
    let server = fencelock_lab::Redis::start().unwrap();
    for mood in [Mood::Hold, Mood::Refuse, Mood::DropReplies] {
        let proxy = Proxy::before(server.address()).unwrap();
        let place = Place::at(format!("redis://127.0.0.1:{}", proxy.port()));
        crate::history::cut_off(&place, format!("redis://{}", server.address()), || proxy.set(mood));
    }
}

/// Whether they let us in or not, with everything in the log that there is.
fn assert_discreet(url: &str) {
    let secret = "s3cr3t-Pa55";
    let (scheme, rest) = url.split_once("://").unwrap();
    let hosts = rest.rsplit_once('@').map_or(rest, |(_, hosts)| hosts);
    let user = rest.split_once('@').map_or("root", |(user, _)| user);
    let (bare, full) = (format!("{scheme}://{hosts}"), format!("{scheme}://{user}:{secret}@{hosts}"));
    let variables = vec![("FENCELOCK_PASSWORD", secret), ("FENCELOCK_USERNAME", user)];
    for (url, variables) in [(full, Vec::new()), (bare, variables)] {
        let place = Place::at(url);
        let commands: [&[&str]; 4] = [&["check"], &["status", "n"], &["list"], &["run", "n", "--", "true"]];
        for (args, format) in commands.into_iter().zip(["text", "json", "text", "json"]) {
            let mut command = place.fencelock(["--log-format", format]);
            command.args(args).envs(variables.clone()).env("FENCELOCK_LOG", "trace").env("RUST_BACKTRACE", "1");
            let said = output(command);
            let all = format!("{}{}", said.stdout, said.stderr);
            assert!(!all.contains(secret), "{args:?} {all}");
            assert!(matches!(said.code, Some(0 | 69 | 70 | 77 | 78)), "{args:?} {:?} {all}", said.code);
        }
    }
}

#[cfg(feature = "etcd")]
#[test]
fn no_password_for_etcd_is_shown() {
    let etcd = fencelock_lab::Etcd::start().unwrap();
    assert_discreet(&format!("etcd://{}", etcd.endpoint(0).unwrap()));
}

#[cfg(feature = "mysql")]
#[test]
fn no_password_for_mariadb_is_shown() {
    let server = fencelock_lab::MariaDb::start().unwrap();
    assert_discreet(&server.url());
}

#[cfg(feature = "postgres")]
#[test]
fn no_password_for_postgres_is_shown() {
    let server = fencelock_lab::Postgres::start().unwrap();
    assert_discreet(&server.url());
}

#[cfg(feature = "redlock")]
#[test]
fn no_password_for_redlock_is_shown() {
    let nodes = fencelock_lab::RedisNodes::start(3).unwrap();
    assert_discreet(&format!("redlock://{}", nodes.addresses()));
}

#[cfg(feature = "zookeeper")]
#[test]
fn no_password_for_zookeeper_is_shown() {
    let server = fencelock_lab::ZooKeeper::start().unwrap();
    assert_discreet(&format!("zookeeper://{}", server.address()));
}
