//! What there is to set.

use fencelock_core::{EngineUrl, Error, ErrorKind, Result, Secret};
use fencelock_redis::RedisConfig;
use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// TLS, where it is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Tls {
    ca_file: Option<PathBuf>,
    /// Certificate and key of the client.
    identity: Option<(PathBuf, PathBuf)>,
}

/// Which nodes, and how they are used. All have the same user, password and settings.
///
/// ```
/// use fencelock_core::EngineUrl;
/// use fencelock_redlock::RedlockConfig;
/// let url = EngineUrl::parse("redlock://:secret@10.0.0.1,10.0.0.2,10.0.0.3?request_timeout=100ms").unwrap();
/// let config = RedlockConfig::from_url(&url).unwrap();
/// assert!(!format!("{config:?}").contains("secret"));
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct RedlockConfig {
    pub(crate) nodes: Vec<(String, u16)>,
    user: Option<String>,
    password: Option<Secret>,
    database: u32,
    tls: Option<Tls>,
    pub(crate) prefix: String,
    pub(crate) request_timeout: Duration,
    connect_timeout: Duration,
    pub(crate) attested: Vec<String>,
}

impl RedlockConfig {
    /// The independent servers at these hosts and ports: an odd number, three at least.
    #[must_use]
    pub fn new<H: Into<String>>(nodes: impl IntoIterator<Item = (H, u16)>) -> Self {
        Self {
            nodes: nodes.into_iter().map(|(host, port)| (host.into(), port)).collect(),
            user: None,
            password: None,
            database: 0,
            tls: None,
            prefix: "redlock".to_owned(),
            request_timeout: Duration::from_millis(250),
            connect_timeout: Duration::from_secs(1),
            attested: Vec::new(),
        }
    }

    /// From `redlock://h1,h2,h3/DATABASE`, with user and password where there are any.
    ///
    /// Settings: `prefix`, `request_timeout`, `connect_timeout`, `tls`, `ca_file`,
    /// `cert_file`, `key_file`.
    ///
    /// # Errors
    /// `InvalidConfig` names what is unknown or wrong.
    pub fn from_url(url: &EngineUrl) -> Result<Self> {
        let mut settings = url.settings.clone();
        let mut config = Self::new(url.hosts.iter().map(|host| (host.name.clone(), host.port.unwrap_or(6_379))));
        config.user.clone_from(&url.user);
        config.password.clone_from(&url.password);
        let path = url.path.trim_start_matches('/');
        if !path.is_empty() {
            let number = path.parse();
            config.database = number
                .map_err(|_| invalid("after the nodes comes the database's number, as in `redlock://h1,h2,h3/2`"))?;
        }
        if let Some(prefix) = settings.text("prefix") {
            config.prefix = prefix;
        }
        if let Some(limit) = settings.duration("request_timeout")? {
            config.request_timeout = limit;
        }
        if let Some(limit) = settings.duration("connect_timeout")? {
            config.connect_timeout = limit;
        }
        let asked = settings.flag("tls")?;
        let ca_file = settings.text("ca_file").map(PathBuf::from);
        let identity = match (settings.text("cert_file"), settings.text("key_file")) {
            (Some(cert), Some(key)) => Some((cert.into(), key.into())),
            (None, None) => None,
            _ => return Err(invalid("`cert_file` and `key_file` belong together")),
        };
        if asked == Some(true) {
            config.tls = Some(Tls { ca_file, identity });
        } else if ca_file.is_some() || identity.is_some() {
            return Err(invalid("a certificate is for TLS: set `tls=true`"));
        }
        settings.finish()?;
        config.check()?;
        Ok(config)
    }

    /// The password, and the user it belongs to; without one it is that of Redis's default user.
    #[must_use]
    pub fn with_credentials(mut self, user: Option<String>, password: Secret) -> Self {
        self.user = user;
        self.password = Some(password);
        self
    }

    /// The database's number on each node; 0 unless set.
    #[must_use]
    pub fn with_database(mut self, number: u32) -> Self {
        self.database = number;
        self
    }

    /// Uses TLS. Trusts the certificates in the PEM file `ca_file`, or the system's without one.
    #[must_use]
    pub fn with_tls(mut self, ca_file: Option<PathBuf>) -> Self {
        let identity = self.tls.take().and_then(|tls| tls.identity);
        self.tls = Some(Tls { ca_file, identity });
        self
    }

    /// Shows the nodes this certificate, with its key, both in PEM files. Implies TLS.
    #[must_use]
    pub fn with_client_certificate(mut self, cert_file: impl Into<PathBuf>, key_file: impl Into<PathBuf>) -> Self {
        self.tls.get_or_insert_default().identity = Some((cert_file.into(), key_file.into()));
        self
    }

    /// What every key begins with; `redlock` unless set. Programs with different prefixes share no locks.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The longest that one node may take before it counts as not answered, 10 ms to 1 s;
    /// 250 ms unless set. A fifth of the ttl counts instead where that is shorter.
    #[must_use]
    pub fn with_request_timeout(mut self, limit: Duration) -> Self {
        self.request_timeout = limit;
        self
    }

    /// The longest that opening a connection may take; 1 s unless set.
    #[must_use]
    pub fn with_connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// The rules that the configuration attests, by id.
    #[must_use]
    pub fn with_attested<S: Into<String>>(mut self, ids: impl IntoIterator<Item = S>) -> Self {
        self.attested = ids.into_iter().map(Into::into).collect();
        self
    }

    /// What cannot be right whatever the servers are.
    pub(crate) fn check(&self) -> Result<()> {
        let count = self.nodes.len();
        if count < 3 {
            let message = format!(
                "Redlock needs 3 nodes at least, and {count} are named: a majority must survive the loss of one"
            );
            return Err(invalid(message));
        }
        if count.is_multiple_of(2) {
            let message = format!(
                "Redlock needs an odd number of nodes, and {count} are named: {count} survive the loss of no more than {} would",
                count - 1
            );
            return Err(invalid(message));
        }
        if self.nodes.iter().collect::<BTreeSet<_>>().len() < count {
            return Err(invalid("one node is named twice: each vote must be that of another server"));
        }
        let bounds = Duration::from_millis(10)..=Duration::from_secs(1);
        if !bounds.contains(&self.request_timeout) {
            return Err(invalid("`request_timeout` is 10 ms to 1 s"));
        }
        Ok(())
    }

    /// How each node is reached.
    pub(crate) fn each(&self) -> impl Iterator<Item = RedisConfig> + '_ {
        self.nodes.iter().map(|(host, port)| {
            let mut config = RedisConfig::standalone(host.clone(), *port)
                .with_database(self.database)
                .with_prefix(self.prefix.clone())
                .with_request_timeout(self.request_timeout)
                .with_connect_timeout(self.connect_timeout);
            if let Some(password) = &self.password {
                config = config.with_credentials(self.user.clone(), password.clone());
            }
            if let Some(tls) = &self.tls {
                config = config.with_tls(tls.ca_file.clone());
                if let Some((cert, key)) = &tls.identity {
                    config = config.with_client_certificate(cert, key);
                }
            }
            config
        })
    }
}

fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidConfig, message).with_engine("redlock")
}

impl fmt::Debug for RedlockConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedlockConfig")
            .field("nodes", &self.nodes)
            .field("user", &self.user)
            .field("password", &self.password)
            .field("database", &self.database)
            .field("tls", &self.tls)
            .field("prefix", &self.prefix)
            .field("request_timeout", &self.request_timeout)
            .field("connect_timeout", &self.connect_timeout)
            .field("attested", &self.attested)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(url: &str) -> Result<RedlockConfig> {
        RedlockConfig::from_url(&EngineUrl::parse(url)?)
    }

    #[test]
    fn what_is_wrong_is_refused_with_the_reason() {
        for (bad, why) in [
            ("redlock:", "3 nodes at least"),
            ("redlock://a,b", "3 nodes at least"),
            ("redlock://a,b,c,d", "odd"),
            ("redlock://a,b,a:6379", "twice"),
            ("redlock://a,b,c/x", "database"),
            ("redlock://a,b,c?request_timeout=2s", "10 ms to 1 s"),
            ("redlock://a,b,c?ca_file=x", "tls=true"),
            ("redlock://a,b,c?prefx=x", "did you mean `prefix`"),
        ] {
            let e = from(bad).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{bad}");
            assert!(e.message().contains(why), "{bad}: {e}");
        }
        let good = from("redlock://us:pa%40ss@a,b:7,[::1]:8/2?prefix=p").unwrap();
        assert_eq!(good.nodes, [("a".to_owned(), 6_379), ("b".to_owned(), 7), ("::1".to_owned(), 8)]);
        assert!(!format!("{good:?}").contains("pa@ss"));
    }
}
