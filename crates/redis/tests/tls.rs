//! TLS: who is trusted, and who is not.

#![cfg(feature = "tls")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs, reason = "a test")]

mod common;

use common::{client, engine};
use fencelock_core::ErrorKind;
use fencelock_lab::{Certificates, Redis, RedisCluster, RedisSentinel, free_port};

fn start(files: &Certificates, clients: &str) -> (Redis, u16) {
    let port = free_port();
    let path = |file: &str| files.path(file).display().to_string();
    let settings = [
        ("--tls-port", port.to_string()),
        ("--tls-cert-file", path("server.crt")),
        ("--tls-key-file", path("server.key")),
        ("--tls-ca-cert-file", path("ca.pem")),
        ("--tls-auth-clients", clients.to_owned()),
        ("--save", String::new()),
    ];
    (Redis::start_with(settings.into_iter().flat_map(|(key, value)| [key.to_owned(), value])).unwrap(), port)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trusted_server_is_used_and_any_other_is_not() {
    let (files, other) = (Certificates::make().unwrap(), Certificates::make().unwrap());
    let (redis, port) = start(&files, "no");
    let ca = files.path("ca.pem").display().to_string();
    for host in ["localhost", "127.0.0.1"] {
        let client = client(&format!("rediss://{host}:{port}?ca_file={ca}")).await;
        client.acquire("a").await.unwrap().release().await.unwrap();
        let guard = client.acquire("a").await.unwrap();
        assert!(client.try_acquire("a").await.unwrap().is_none());
        guard.release().await.unwrap();
    }
    let foreign = other.path("ca.pem").display().to_string();
    for wrong in [format!("?ca_file={foreign}"), String::new()] {
        let e = engine(&format!("rediss://localhost:{port}{wrong}")).await.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    }
    // TLS to a port that has none, and none to a port that has it.
    let plain = redis.address().port();
    assert!(engine(&format!("rediss://localhost:{plain}?ca_file={ca}")).await.is_err());
    assert!(engine(&format!("redis://localhost:{port}")).await.is_err());
    let e = engine(&format!("rediss://localhost:{port}?ca_file=/no/such/file")).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{e}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_asks_who_we_are_is_told() {
    let files = Certificates::make().unwrap();
    let (_redis, port) = start(&files, "yes");
    let path = |file: &str| files.path(file).display().to_string();
    let url = format!("rediss://localhost:{port}?ca_file={}", path("ca.pem"));
    assert!(engine(&url).await.is_err());
    let shown = format!("{url}&cert_file={}&key_file={}", path("client.crt"), path("client.key"));
    client(&shown).await.acquire("a").await.unwrap().release().await.unwrap();
}

/// Sentinels and servers alike, through a fail-over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_are_asked_by_tls() {
    let files = Certificates::make().unwrap();
    let mut set = RedisSentinel::start_tls(&files).unwrap();
    let hosts: Vec<_> = set.tls_sentinels().iter().map(ToString::to_string).collect();
    let (hosts, ca) = (hosts.join(","), files.path("ca.pem").display().to_string());
    let client = client(&format!("redis+sentinel://{hosts}/{}?tls=true&ca_file={ca}", set.name())).await;
    client.acquire("a").await.unwrap().release().await.unwrap();
    assert!(engine(&format!("redis+sentinel://{hosts}/{}", set.name())).await.is_err(), "without TLS");
    set.servers_mut()[0].server_mut().kill();
    let guard = client.named("a").wait_at_most(std::time::Duration::from_secs(30)).acquire().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_of_a_cluster_is_reached_by_tls() {
    let files = Certificates::make().unwrap();
    let cluster = RedisCluster::start_tls(&files).unwrap();
    let ca = files.path("ca.pem").display().to_string();
    let client = client(&format!("redis+cluster://localhost:{}?tls=true&ca_file={ca}", cluster.ports()[5])).await;
    for at in 0..30 {
        let name = format!("lock {at}");
        let guard = client.acquire(&name).await.unwrap();
        assert!(client.try_acquire(&name).await.unwrap().is_none());
        guard.release().await.unwrap();
    }
    let plain = format!("redis+cluster://localhost:{}", cluster.ports()[5]);
    assert!(engine(&plain).await.is_err(), "without TLS");
}
