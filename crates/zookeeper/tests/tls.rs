//! TLS, with and without a certificate of the client's own.

#![cfg(feature = "tls")]
#![allow(clippy::unwrap_used, missing_docs, reason = "a test")]

mod common;

use common::{SLACK, client, engine, until};
use fencelock_core::ErrorKind;
use fencelock_lab::{Certificates, ZooKeeper};

fn url(server: &ZooKeeper, settings: &str) -> String {
    format!("zookeeper://{}?session=4s&connect_timeout=10s{settings}", server.secure_address().unwrap())
}

/// A server takes TLS connections somewhat later than plain ones.
async fn with_tls(certificates: &Certificates, clients_too: bool) -> ZooKeeper {
    let server = ZooKeeper::start_tls(certificates, clients_too).unwrap();
    let secure = server.secure_address().unwrap();
    until("it takes TLS connections", SLACK, || async { tokio::net::TcpStream::connect(secure).await.is_ok() }).await;
    server
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_trusted_serves() {
    let certificates = Certificates::make().unwrap();
    let server = with_tls(&certificates, false).await;
    let ca = certificates.path("ca.pem");
    let url = |ca: &std::path::Path| url(&server, &format!("&ca_file={}", ca.display()));
    let (one, two) = (client(&url(&ca)).await, client(&url(&ca)).await);
    let guard = one.acquire("a").await.unwrap();
    assert!(two.try_acquire("a").await.unwrap().is_none());
    guard.release().await.unwrap();
    two.acquire("a").await.unwrap().release().await.unwrap();

    let other = Certificates::make().unwrap();
    let e = engine(&url(&other.path("ca.pem"))).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "a server that is not trusted: {e}");
    assert!(e.to_string().contains("certificate is not trusted"), "{e}");
    let e = engine(&url(&ca.with_file_name("missing"))).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{e}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_may_ask_for_a_certificate() {
    let certificates = Certificates::make().unwrap();
    let server = with_tls(&certificates, true).await;
    let file = |name: &str| certificates.path(name).display().to_string();
    let (ca, cert, key) = (file("ca.pem"), file("client.crt"), file("client.key"));
    let shown = client(&url(&server, &format!("&ca_file={ca}&cert_file={cert}&key_file={key}"))).await;
    shown.acquire("a").await.unwrap().release().await.unwrap();
    let e = engine(&url(&server, &format!("&ca_file={ca}"))).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    assert!(e.to_string().contains("certificate is not trusted, or that does not accept ours, or demands one"), "{e}");
}
