//! What the settings of PostgreSQL and of MySQL have in common.

use fencelock_core::{EngineUrl, Error, ErrorKind, Result, Secret, Settings};
use std::path::{Path, PathBuf};
use std::time::Duration;

const TLS: [&str; 4] = ["disable", "require", "verify-ca", "verify-full"];
/// With what is appended to it, a table's name has at most the 63 bytes of PostgreSQL.
const LONGEST_TABLE: usize = 57;

/// How a connection to a database server is protected. Anything but
/// [`Disable`](Self::Disable) needs the cargo feature `tls`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tls {
    /// Not at all.
    #[default]
    Disable,
    /// Encrypted, whoever the server is.
    Require,
    /// The server's certificate must be signed by a known authority.
    VerifyCa,
    /// … and be for the host that was asked for.
    VerifyFull,
}

#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) socket: Option<PathBuf>,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
    pub(crate) database: String,
    pub(crate) tls: Tls,
    pub(crate) authority: Option<PathBuf>,
    /// A certificate of ours, and its key.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
    pub(crate) request_timeout: Duration,
    pub(crate) connections: usize,
    pub(crate) table: String,
    pub(crate) token_base: u64,
    pub(crate) create: bool,
    pub(crate) attested: Vec<String>,
}

impl Server {
    pub(crate) fn new(host: String, port: u16, database: String) -> Self {
        Self {
            host,
            port,
            socket: None,
            user: None,
            password: None,
            database,
            tls: Tls::Disable,
            authority: None,
            identity: None,
            request_timeout: Duration::from_secs(2),
            connections: 4,
            table: "fencelock_locks".to_owned(),
            token_base: 0,
            create: true,
            attested: Vec::new(),
        }
    }

    /// What both know, taken from the URL; the settings that are left are the caller's.
    pub(crate) fn from_url(url: &EngineUrl, port: u16) -> Result<(Self, Settings)> {
        let mut settings = url.settings.clone();
        let socket = settings.text("socket").map(PathBuf::from);
        let (host, port) = match (&*url.hosts, &socket) {
            ([host], _) => (host.name.clone(), host.port.unwrap_or(port)),
            ([], Some(_)) => ("localhost".to_owned(), port),
            ([], None) => return Err(invalid("the URL names no host, and no `socket` either")),
            _ => {
                let message = "a lock table is in one database: name one host, which leads to the primary";
                return Err(invalid(message));
            }
        };
        let mut server = Self::new(host, port, url.path.trim_start_matches('/').to_owned());
        server.socket = socket;
        server.user.clone_from(&url.user);
        server.password.clone_from(&url.password);
        server.tls = match settings.choice("sslmode", &TLS)? {
            Some("require") => Tls::Require,
            Some("verify-ca") => Tls::VerifyCa,
            Some("verify-full") => Tls::VerifyFull,
            _ => Tls::Disable,
        };
        server.authority = settings.text("sslrootcert").map(PathBuf::from);
        server.identity = match (settings.text("sslcert"), settings.text("sslkey")) {
            (Some(certificate), Some(key)) => Some((certificate.into(), key.into())),
            (None, None) => None,
            _ => return Err(invalid("`sslcert` and `sslkey` go together")),
        };
        if let Some(limit) = settings.duration("request_timeout")? {
            server.request_timeout = limit;
        }
        if let Some(connections) = settings.number("connections")? {
            server.connections = connections;
        }
        if let Some(table) = settings.text("table") {
            server.table = table;
        }
        if let Some(base) = settings.number("token_base")? {
            server.token_base = base;
        }
        if let Some(create) = settings.flag("create")? {
            server.create = create;
        }
        Ok((server, settings))
    }

    /// What cannot be right whatever the server is.
    pub(crate) fn check(&self) -> Result<()> {
        let (least, most) = (Duration::from_millis(10), Duration::from_secs(3600));
        if self.request_timeout < least || self.request_timeout > most {
            return Err(invalid("`request_timeout` is 10 ms to 1 h"));
        }
        if self.connections == 0 || self.connections > 100 {
            return Err(invalid("`connections` is 1 to 100"));
        }
        if self.token_base >= i64::MAX.unsigned_abs() {
            return Err(invalid("`token_base` is below 9223372036854775807"));
        }
        if self.database.is_empty() {
            return Err(invalid("the URL names no database: write it after the host, as in `//host/database`"));
        }
        if self.tls != Tls::Disable && !cfg!(feature = "tls") {
            return Err(invalid("`sslmode` other than `disable` needs the cargo feature `tls`"));
        }
        if self.authority.is_some() && !matches!(self.tls, Tls::VerifyCa | Tls::VerifyFull) {
            return Err(invalid("`sslrootcert` is heeded with `sslmode=verify-ca` and `verify-full` alone"));
        }
        if self.identity.is_some() && self.tls == Tls::Disable {
            return Err(invalid("`sslcert` and `sslkey` are shown to a server by TLS alone: set `sslmode`"));
        }
        check_table(&self.table)
    }

    /// The same, and what cannot be right on this machine.
    pub(crate) fn check_here(&self) -> Result<()> {
        self.check()?;
        let authority = self.authority.iter().map(|path| ("sslrootcert", path, "CERTIFICATE-----"));
        let identity = self.identity.iter().flat_map(|(certificate, key)| {
            [("sslcert", certificate, "CERTIFICATE-----"), ("sslkey", key, "PRIVATE KEY-----")]
        });
        authority.chain(identity).try_for_each(|(setting, path, holds)| check_pem(setting, path, holds))
    }

    pub(crate) fn least_token(&self) -> i64 {
        i64::try_from(self.token_base).unwrap_or(i64::MAX).saturating_add(1)
    }
}

/// A file that is no PEM file of the right kind is said to be so before anybody connects.
fn check_pem(setting: &str, path: &Path, holds: &str) -> Result<()> {
    let told = |what: String| Error::new(ErrorKind::InvalidConfig, what);
    let text = std::fs::read(path)
        .map_err(|e| told(format!("`{setting}` cannot be read: {}: {e}", path.display())).with_source(e))?;
    let text = String::from_utf8_lossy(&text);
    if text.contains("ENCRYPTED") {
        return Err(told(format!(
            "`{setting}` is encrypted, and nobody is there to ask for its password: {}",
            path.display()
        )));
    }
    if text.contains(holds) {
        return Ok(());
    }
    let kind = if holds.starts_with("PRIVATE") { "private key" } else { "certificate" };
    Err(told(format!("`{setting}` holds no {kind} in PEM: {}", path.display())))
}

/// A table's name may have its schema before it, and is plain: it goes into statements.
pub(crate) fn check_table(name: &str) -> Result<()> {
    let plain = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && part.len() <= LONGEST_TABLE
    };
    if name.split('.').count() <= 2 && name.split('.').all(plain) {
        return Ok(());
    }
    Err(invalid(
        "`table` is a name of at most 57 ASCII letters, digits and `_`, which begins with no digit and may follow its schema and a dot",
    ))
}

/// The name between quotes, which end each part.
pub(crate) fn quoted(name: &str, quote: char) -> String {
    let parts: Vec<_> = name.split('.').map(|part| format!("{quote}{part}{quote}")).collect();
    parts.join(".")
}

pub(crate) fn invalid(message: &'static str) -> Error {
    Error::new(ErrorKind::InvalidConfig, message)
}

/// The setters and the `Debug` of a config that is a [`Server`] and something more.
macro_rules! server_config {
    ($config:ident) => {
        impl $config {
            /// Who to connect as.
            #[must_use]
            pub fn with_user(mut self, user: impl Into<String>) -> Self {
                self.server.user = Some(user.into());
                self
            }

            /// The user's password.
            #[must_use]
            pub fn with_password(mut self, password: impl Into<String>) -> Self {
                self.server.password = Some(fencelock_core::Secret::new(password));
                self
            }

            /// How the connection is protected; not at all unless set.
            #[must_use]
            pub fn with_tls(mut self, tls: crate::server::Tls) -> Self {
                self.server.tls = tls;
                self
            }

            /// The file with the certificates of the authorities to trust, instead of those that come with the
            /// library. Only `VerifyCa` and `VerifyFull` heed it.
            #[must_use]
            pub fn with_authority(mut self, file: impl Into<std::path::PathBuf>) -> Self {
                self.server.authority = Some(file.into());
                self
            }

            /// Shows the server this certificate, with its key, both in PEM files that are read at each
            /// connect. Needs TLS.
            #[must_use]
            pub fn with_identity(
                mut self,
                certificate: impl Into<std::path::PathBuf>,
                key: impl Into<std::path::PathBuf>,
            ) -> Self {
                self.server.identity = Some((certificate.into(), key.into()));
                self
            }

            /// The longest that one statement may take before it counts as not answered; 2 s unless set.
            #[must_use]
            pub fn with_request_timeout(mut self, limit: std::time::Duration) -> Self {
                self.server.request_timeout = limit;
                self
            }

            /// The most connections for acquires and releases, 4 unless set; renewals have one more.
            #[must_use]
            pub fn with_connections(mut self, most: usize) -> Self {
                self.server.connections = most;
                self
            }

            /// The table, `fencelock_locks` unless set. The tables beside it are called after it.
            #[must_use]
            pub fn with_table(mut self, name: impl Into<String>) -> Self {
                self.server.table = name.into();
                self
            }

            /// Every token will be larger than this: the largest that another engine gave out.
            #[must_use]
            pub fn with_token_base(mut self, base: u64) -> Self {
                self.server.token_base = base;
                self
            }

            /// Whether tables that do not exist are created; they are unless set.
            #[must_use]
            pub fn with_create(mut self, create: bool) -> Self {
                self.server.create = create;
                self
            }

            /// The rules that the configuration attests, by id.
            #[must_use]
            pub fn with_attested<S: Into<String>>(mut self, ids: impl IntoIterator<Item = S>) -> Self {
                self.server.attested = ids.into_iter().map(Into::into).collect();
                self
            }
        }

        impl std::fmt::Debug for $config {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($config))
                    .field("host", &self.server.host)
                    .field("port", &self.server.port)
                    .field("socket", &self.server.socket)
                    .field("user", &self.server.user)
                    .field("password", &self.server.password)
                    .field("database", &self.server.database)
                    .field("tls", &self.server.tls)
                    .field("authority", &self.server.authority)
                    .field("identity", &self.server.identity)
                    .field("request_timeout", &self.server.request_timeout)
                    .field("connections", &self.server.connections)
                    .field("table", &self.server.table)
                    .field("token_base", &self.server.token_base)
                    .field("create", &self.server.create)
                    .field("attested", &self.server.attested)
                    .finish_non_exhaustive()
            }
        }
    };
}

pub(crate) use server_config;

#[cfg(test)]
mod tests {
    use super::*;

    fn from(settings: &str) -> Result<Server> {
        let (server, rest) = Server::from_url(&EngineUrl::parse(&format!("x://h/d{settings}"))?, 1)?;
        rest.finish()?;
        server.check().map(|()| server)
    }

    #[test]
    fn tls_needs_its_feature_and_a_certificate_needs_tls() {
        let shown = from("?sslmode=verify-full&sslrootcert=a&sslcert=b&sslkey=c");
        if cfg!(feature = "tls") {
            assert_eq!(shown.unwrap().identity, Some(("b".into(), "c".into())));
        } else {
            assert!(shown.err().unwrap().message().contains("cargo feature `tls`"));
        }
        for bad in ["?sslcert=b", "?sslkey=c", "?sslcert=b&sslkey=c", "?sslrootcert=a", "?sslmode=on"] {
            assert_eq!(from(bad).err().unwrap().kind(), ErrorKind::InvalidConfig, "{bad}");
        }
    }

    #[test]
    fn tables_have_plain_names() {
        for fine in ["fencelock_locks", "app.Locks", "_x", "a.b_2"] {
            check_table(fine).unwrap();
        }
        let long = "x".repeat(58);
        for bad in ["", "a.b.c", "1a", "a-b", "a\"b", "a;b", "a b", ".a", "a.", "é", &long] {
            assert_eq!(check_table(bad).unwrap_err().kind(), ErrorKind::InvalidConfig, "{bad}");
        }
        assert_eq!(quoted("app.Locks", '"'), "\"app\".\"Locks\"");
    }
}
