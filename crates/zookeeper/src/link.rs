//! Connections: what the client library is asked for.

use crate::config::{ZooKeeperConfig, invalid};
use fencelock_core::{Error, ErrorKind, Result};
use std::time::Duration;
use zookeeper_client::{Client, Connector};

/// What a session is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To live in; a connection that is silent for this long is given up for another.
    Keep { silence: Duration },
    /// To see what time-out one server gives.
    Measure,
    /// To be left to the servers, which end it after its time-out.
    Leave,
}

/// Opens a session of its own at `servers` (`host:port,…`).
pub(crate) async fn open(
    config: &ZooKeeperConfig,
    servers: &str,
    session: Duration,
    purpose: Purpose,
) -> Result<Client> {
    let mut connector = Client::connector().with_session_timeout(session);
    connector = match purpose {
        Purpose::Keep { silence } => connector.with_connection_timeout(silence.max(Duration::from_millis(8))),
        Purpose::Measure => connector.with_fail_eagerly(),
        Purpose::Leave => connector.with_detached(),
    };
    if let Some((user, password)) = &config.user {
        connector = connector.with_auth("digest", format!("{user}:{}", password.reveal()).as_bytes());
    }
    connect(config, connector, servers).await.map_err(|e| match e {
        Failed::Before(e) => e,
        Failed::At(zookeeper_client::Error::AuthFailed) => {
            Error::new(ErrorKind::Denied, "the servers refuse to authenticate this client")
        }
        Failed::At(zookeeper_client::Error::BadArguments(why)) => invalid(why.to_string()),
        Failed::At(e) if config.tls.is_some() => {
            // The client library keeps to itself at which step a server was given up.
            let hint = "over TLS that is also a server whose certificate is not trusted, or that does not accept ours, \
                        or demands one: its log says which";
            Error::new(ErrorKind::Unavailable, format!("no session: {e} ({hint})"))
        }
        Failed::At(e) => Error::new(ErrorKind::Unavailable, format!("no session: {e}")),
    })
}

enum Failed {
    /// Nothing was asked of any server.
    #[cfg_attr(feature = "tls", allow(dead_code, reason = "without TLS only"))]
    Before(Error),
    At(zookeeper_client::Error),
}

async fn connect(config: &ZooKeeperConfig, connector: Connector, servers: &str) -> Result<Client, Failed> {
    match &config.tls {
        None => connector.connect(servers).await.map_err(Failed::At),
        #[cfg(feature = "tls")]
        Some(tls) => {
            let options = options(tls).await.map_err(Failed::Before)?;
            connector.with_tls(options).secure_connect(servers).await.map_err(Failed::At)
        }
        #[cfg(not(feature = "tls"))]
        Some(_) => Err(Failed::Before(invalid("TLS needs the cargo feature `tls`"))),
    }
}

#[cfg(feature = "tls")]
async fn options(tls: &crate::config::Tls) -> Result<zookeeper_client::TlsOptions> {
    async fn read(path: &std::path::Path) -> Result<String> {
        tokio::fs::read_to_string(path).await.map_err(|e| invalid(format!("{}: {e}", path.display())))
    }
    let bad = |e: zookeeper_client::Error| invalid(format!("TLS: {e}"));
    let mut options = zookeeper_client::TlsOptions::new().with_pem_ca(&read(&tls.ca).await?).map_err(bad)?;
    if let Some((cert, key)) = &tls.identity {
        options = options.with_pem_identity(&read(cert).await?, &read(key).await?).map_err(bad)?;
    }
    Ok(options)
}
