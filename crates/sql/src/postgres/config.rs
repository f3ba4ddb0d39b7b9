//! What there is to set.

use crate::server::{Server, Tls, server_config};
use fencelock_core::{EngineUrl, Result};
use sqlx::ConnectOptions as _;
use sqlx::postgres::{PgConnectOptions, PgSslMode};

const POOLERS: [&str; 3] = ["detect", "none", "transaction"];

/// Whether something stands before the server that hands its connections round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pooler {
    /// Found out at connect, by whether the session is the one that was asked for, and
    /// whether statements of one connection run in several.
    #[default]
    Detect,
    /// No, or only one that gives each client a session to itself.
    None,
    /// One that gives a session to each transaction, such as `PgBouncer` in transaction mode:
    /// nothing is set in the session, statements are not prepared, and waiters ask
    /// again and again instead of being told.
    Transaction,
}

/// Which PostgreSQL, and how it is used.
///
/// ```
/// use fencelock_core::EngineUrl;
/// use fencelock_sql::postgres::PostgresConfig;
/// let url = EngineUrl::parse("postgres://app:hunter2@db.example/app?connections=2").unwrap();
/// let config = PostgresConfig::from_url(&url).unwrap();
/// assert!(!format!("{config:?}").contains("hunter2"));
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct PostgresConfig {
    pub(crate) server: Server,
    pub(crate) pooler: Pooler,
}

server_config!(PostgresConfig);

impl PostgresConfig {
    /// The database on the host, with the defaults.
    #[must_use]
    pub fn new(host: impl Into<String>, database: impl Into<String>) -> Self {
        Self { server: Server::new(host.into(), 5432, database.into()), pooler: Pooler::Detect }
    }

    /// From `postgres://USER:PASSWORD@HOST:PORT/DATABASE` and its settings: `request_timeout`,
    /// `connections`, `table`, `token_base`, `create`, `sslmode`, `sslrootcert`, `sslcert`, `sslkey`, `socket`
    /// and `pooler`.
    ///
    /// # Errors
    /// `InvalidConfig` names the setting that is unknown or wrong.
    pub fn from_url(url: &EngineUrl) -> Result<Self> {
        Self::read(url).map_err(|e| e.with_engine("postgres"))
    }

    fn read(url: &EngineUrl) -> Result<Self> {
        let (server, mut settings) = Server::from_url(url, 5432)?;
        let pooler = match settings.choice("pooler", &POOLERS)? {
            Some("none") => Pooler::None,
            Some("transaction") => Pooler::Transaction,
            _ => Pooler::Detect,
        };
        settings.finish()?;
        server.check()?;
        Ok(Self { server, pooler })
    }

    /// Another port than 5432.
    #[must_use]
    pub fn with_port(mut self, port: u16) -> Self {
        self.server.port = port;
        self
    }

    /// Whether something stands before the server that hands its connections round.
    #[must_use]
    pub fn with_pooler(mut self, pooler: Pooler) -> Self {
        self.pooler = pooler;
        self
    }

    pub(crate) fn options(&self) -> PgConnectOptions {
        let server = &self.server;
        let mut options = PgConnectOptions::new_without_pgpass()
            .host(&server.host)
            .port(server.port)
            .database(&server.database)
            .application_name("fencelock")
            // Poolers refuse what they do not know, and there is no float here.
            .extra_float_digits(None)
            .ssl_mode(match server.tls {
                Tls::Disable => PgSslMode::Disable,
                Tls::Require => PgSslMode::Require,
                Tls::VerifyCa => PgSslMode::VerifyCa,
                Tls::VerifyFull => PgSslMode::VerifyFull,
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
            options = options.ssl_root_cert(authority);
        }
        if let Some((certificate, key)) = &server.identity {
            options = options.ssl_client_cert(certificate).ssl_client_key(key);
        }
        options
    }
}
