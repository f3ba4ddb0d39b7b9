//! What there is to set.

use crate::server::{Server, Tls, server_config};
use fencelock_core::{EngineUrl, Result};
use sqlx::ConnectOptions as _;
use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};

/// Which MySQL or MariaDB, and how it is used.
///
/// ```
/// use fencelock_core::EngineUrl;
/// use fencelock_sql::mysql::MySqlConfig;
/// let url = EngineUrl::parse("mariadb://app:hunter2@db.example/app?connections=2").unwrap();
/// let config = MySqlConfig::from_url(&url).unwrap();
/// assert!(!format!("{config:?}").contains("hunter2"));
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct MySqlConfig {
    pub(crate) server: Server,
}

server_config!(MySqlConfig);

impl MySqlConfig {
    /// The database on the host, with the defaults.
    #[must_use]
    pub fn new(host: impl Into<String>, database: impl Into<String>) -> Self {
        Self { server: Server::new(host.into(), 3306, database.into()) }
    }

    /// From `mysql://USER:PASSWORD@HOST:PORT/DATABASE` and its settings: `request_timeout`,
    /// `connections`, `table`, `token_base`, `create`, `sslmode`, `sslrootcert`, `sslcert`, `sslkey` and
    /// `socket`.
    ///
    /// # Errors
    /// `InvalidConfig` names the setting that is unknown or wrong.
    pub fn from_url(url: &EngineUrl) -> Result<Self> {
        Self::read(url).map_err(|e| e.with_engine("mysql"))
    }

    fn read(url: &EngineUrl) -> Result<Self> {
        let (server, settings) = Server::from_url(url, 3306)?;
        settings.finish()?;
        server.check()?;
        Ok(Self { server })
    }

    /// Another port than 3306.
    #[must_use]
    pub fn with_port(mut self, port: u16) -> Self {
        self.server.port = port;
        self
    }

    pub(crate) fn options(&self) -> MySqlConnectOptions {
        let server = &self.server;
        let mut options = MySqlConnectOptions::new()
            .host(&server.host)
            .port(server.port)
            .database(&server.database)
            .ssl_mode(match server.tls {
                Tls::Disable => MySqlSslMode::Disabled,
                Tls::Require => MySqlSslMode::Required,
                Tls::VerifyCa => MySqlSslMode::VerifyCa,
                Tls::VerifyFull => MySqlSslMode::VerifyIdentity,
            })
            .disable_statement_logging();
        if let Some(socket) = &server.socket {
            options = options.socket(socket);
        }
        if let Some(user) = &server.user {
            options = options.username(user);
        }
        if let Some(password) = &server.password {
            options = options.password(password.reveal());
        }
        if let Some(authority) = &server.authority {
            options = options.ssl_ca(authority);
        }
        if let Some((certificate, key)) = &server.identity {
            options = options.ssl_client_cert(certificate).ssl_client_key(key);
        }
        options
    }
}
