//! Encrypted connections, with our own certificate shown to the server.

#![cfg(feature = "tls")]
#![allow(clippy::unwrap_used, missing_docs, reason = "a test")]

mod common;

use common::{config, connect};
use fencelock_core::{EngineUrl, ErrorKind};
use fencelock_etcd::{EtcdConfig, EtcdLock};
use fencelock_lab::{Certificates, Etcd, EtcdSettings};
use std::time::Duration;

fn short(config: EtcdConfig) -> EtcdConfig {
    config.with_request_timeout(Duration::from_millis(700))
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_work_over_tls_and_only_so() {
    let made = Certificates::make().unwrap();
    let [ca, server, server_key] = ["ca.pem", "server.crt", "server.key"].map(|name| made.path(name));
    let [own, own_key] = ["client.crt", "client.key"].map(|name| made.path(name));
    let etcd = Etcd::start_with(&EtcdSettings::default().with_tls(&server, &server_key, &ca)).unwrap();

    let url = format!(
        "etcd://{}/app?tls=true&ca_file={}&cert_file={}&key_file={}",
        etcd.endpoints().join(","),
        ca.display(),
        own.display(),
        own_key.display()
    );
    let one = connect(EtcdConfig::from_url(&EngineUrl::parse(&url).unwrap()).unwrap()).await;
    let guard = one.acquire("a").await.unwrap();
    assert!(one.try_acquire("a").await.unwrap().is_none());
    guard.release().await.unwrap();

    // Without our certificate, without trusting the server's, and in the clear: nobody is let in.
    for config in [short(config(&etcd)).with_ca_file(&ca), short(config(&etcd)).with_tls(), short(config(&etcd))] {
        let e = EtcdLock::connect(config).await.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    }
    let missing = EtcdLock::connect(config(&etcd).with_ca_file("/none")).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::InvalidConfig, "{missing}");
}
