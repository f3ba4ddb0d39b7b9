//! TLS to every node.

#![cfg(feature = "tls")]
#![allow(clippy::unwrap_used, missing_docs, reason = "a test")]

use fencelock_core::{EngineUrl, LockClient};
use fencelock_lab::{Certificates, Redis, free_port};
use fencelock_redlock::{RedlockConfig, RedlockLock, RedlockOperator};

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_reached_through_tls() {
    let files = Certificates::make().unwrap();
    let path = |file: &str| files.path(file).display().to_string();
    let (cert, key, ca) = (path("server.crt"), path("server.key"), path("ca.pem"));
    let (mut nodes, mut hosts) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let port = free_port().to_string();
        let tls = ["--tls-port", &port, "--tls-cert-file", &cert, "--tls-key-file", &key, "--tls-ca-cert-file", &ca];
        let settings = tls.into_iter().chain(["--tls-auth-clients", "no", "--save", ""]);
        nodes.push(Redis::start_with(settings).unwrap());
        hosts.push(format!("localhost:{port}"));
    }
    let url = format!("redlock://{}?tls=true&ca_file={ca}", hosts.join(","));
    let config = RedlockConfig::from_url(&EngineUrl::parse(&url).unwrap()).unwrap();
    RedlockOperator::new(config.clone()).unwrap().init(0).await.unwrap();
    let client = LockClient::builder(RedlockLock::connect(config).await.unwrap()).build().unwrap();
    client.acquire("a").await.unwrap().release().await.unwrap();
}
