//! How one member is connected to.

use crate::EtcdConfig;
#[cfg(feature = "tls")]
use crate::config::{Tls, invalid};
use etcd_client::ConnectOptions;
use fencelock_core::Result;
use std::time::Duration;

/// Pings of a connection that has open streams. etcd drops a connection that is pinged
/// more often than every 5 s, or while it has none.
const PING: (Duration, Duration) = (Duration::from_secs(6), Duration::from_secs(3));

/// The client library's options. Their `Debug` shows the password: never print them.
#[cfg_attr(not(feature = "tls"), allow(clippy::unused_async, reason = "files are read for `tls`"))]
pub(crate) async fn options(config: &EtcdConfig) -> Result<ConnectOptions> {
    let mut options = ConnectOptions::new()
        .with_connect_timeout(config.connect_timeout)
        .with_keep_alive(PING.0, PING.1)
        .with_keep_alive_while_idle(false)
        .with_require_leader(true)
        .with_auto_token_refresh(true);
    if let Some((user, password)) = &config.user {
        options = options.with_user(user, password.reveal());
    }
    #[cfg(feature = "tls")]
    if let Some(tls) = &config.tls {
        options = options.with_tls(encryption(tls).await?);
    }
    Ok(options)
}

#[cfg(feature = "tls")]
async fn encryption(tls: &Tls) -> Result<etcd_client::TlsOptions> {
    use etcd_client::{Certificate, Identity, TlsOptions};
    let mut options = TlsOptions::new();
    options = match &tls.ca_file {
        Some(path) => options.ca_certificate(Certificate::from_pem(file("ca_file", path).await?)),
        None => options.with_native_roots(),
    };
    if let (Some(certificate), Some(key)) = (&tls.cert_file, &tls.key_file) {
        let (certificate, key) = (file("cert_file", certificate).await?, file("key_file", key).await?);
        options = options.identity(Identity::from_pem(certificate, key));
    }
    if let Some(name) = &tls.server_name {
        options = options.domain_name(name);
    }
    Ok(options)
}

#[cfg(feature = "tls")]
async fn file(setting: &str, path: &std::path::Path) -> Result<Vec<u8>> {
    let (path, shown) = (path.to_owned(), path.display().to_string());
    let read = tokio::task::spawn_blocking(move || std::fs::read(path)).await;
    match read {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(e)) => Err(invalid(format!("`{setting}` {shown}: {e}"))),
        Err(_) => Err(invalid(format!("`{setting}` {shown} could not be read"))),
    }
}
