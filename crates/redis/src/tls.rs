//! TLS: whom to trust, and who we are.

use crate::config::Tls;
use crate::failure::Failure;
use fencelock_core::ErrorKind;
use redis::{Client, ClientTlsConfig, ConnectionInfo, TlsCertificates};
use std::path::Path;

pub(crate) fn client(info: ConnectionInfo, tls: &Tls) -> Result<Client, Failure> {
    // Only the first in a process counts, and with none rustls would panic where two are compiled in.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let root_cert = tls.ca_file.as_deref().map(read).transpose()?;
    let client_tls = match &tls.identity {
        Some((cert, key)) => Some(ClientTlsConfig { client_cert: read(cert)?, client_key: read(key)? }),
        None => None,
    };
    Client::build_with_tls(info, TlsCertificates { client_tls, root_cert })
        .map_err(|e| Failure::new(ErrorKind::InvalidConfig, "a certificate or key cannot be used").with_source(e))
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|e| {
        Failure::new(ErrorKind::InvalidConfig, format!("{} cannot be read", path.display())).with_source(e)
    })
}
