//! What there is to set.

use fencelock_core::{EngineUrl, Error, ErrorKind, Result, Secret};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// The largest `token_base`: Lua's numbers are exact below twice this.
const MAX_TOKEN_BASE: u64 = 1 << 52;

/// A server's name or address, and its port.
pub(crate) type Address = (String, u16);

/// How the servers are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deployment {
    Standalone(Address),
    Sentinel { sentinels: Vec<Address>, master: String },
    Cluster(Vec<Address>),
}

/// TLS, where it is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tls {
    pub(crate) ca_file: Option<PathBuf>,
    /// Certificate and key of the client.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
}

/// Which Redis, and how it is used.
///
/// ```
/// use fencelock_core::EngineUrl;
/// use fencelock_redis::RedisConfig;
/// let url = EngineUrl::parse("redis://app:secret@127.0.0.1/3?request_timeout=250ms").unwrap();
/// let config = RedisConfig::from_url(&url).unwrap();
/// assert!(!format!("{config:?}").contains("secret"));
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct RedisConfig {
    pub(crate) deployment: Deployment,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
    pub(crate) sentinel_user: Option<String>,
    pub(crate) sentinel_password: Option<Secret>,
    pub(crate) database: u32,
    pub(crate) tls: Option<Tls>,
    pub(crate) prefix: String,
    pub(crate) request_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) wait_replicas: u32,
    pub(crate) token_base: u64,
    pub(crate) attested: Vec<String>,
    /// Neither role nor layout is looked at: another engine's server.
    pub(crate) as_it_is: bool,
}

impl RedisConfig {
    fn of(deployment: Deployment) -> Self {
        Self {
            deployment,
            user: None,
            password: None,
            sentinel_user: None,
            sentinel_password: None,
            database: 0,
            tls: None,
            prefix: "fencelock".to_owned(),
            request_timeout: Duration::from_secs(1),
            connect_timeout: Duration::from_secs(1),
            wait_replicas: 0,
            token_base: 0,
            attested: Vec::new(),
            as_it_is: false,
        }
    }

    /// The one server at `host` and `port`.
    #[must_use]
    pub fn standalone(host: impl Into<String>, port: u16) -> Self {
        Self::of(Deployment::Standalone((host.into(), port)))
    }

    /// The master that these Sentinels know by the name `master`.
    #[must_use]
    pub fn sentinel<H: Into<String>>(sentinels: impl IntoIterator<Item = (H, u16)>, master: impl Into<String>) -> Self {
        let sentinels = sentinels.into_iter().map(|(host, port)| (host.into(), port)).collect();
        Self::of(Deployment::Sentinel { sentinels, master: master.into() })
    }

    /// The Cluster that these nodes belong to; one is enough, several survive its absence.
    #[must_use]
    pub fn cluster<H: Into<String>>(nodes: impl IntoIterator<Item = (H, u16)>) -> Self {
        Self::of(Deployment::Cluster(nodes.into_iter().map(|(host, port)| (host.into(), port)).collect()))
    }

    /// From `redis://`, `rediss://` (TLS), `redis+sentinel://h1,h2/mymaster` or
    /// `redis+cluster://h1,h2`, with user and password where there are any.
    ///
    /// After a single server comes its database number, as in `redis://host/3`.
    /// Settings: `prefix`, `request_timeout`, `connect_timeout`, `wait_replicas`,
    /// `token_base`; `database`, `sentinel_user` and `sentinel_password` for
    /// Sentinel; `tls`, `ca_file`, `cert_file` and `key_file`.
    ///
    /// # Errors
    /// `InvalidConfig` names what is unknown or wrong.
    pub fn from_url(url: &EngineUrl) -> Result<Self> {
        let port = if url.scheme == "redis+sentinel" { 26_379 } else { 6_379 };
        let mut hosts: Vec<Address> =
            url.hosts.iter().map(|host| (host.name.clone(), host.port.unwrap_or(port))).collect();
        let path = url.path.trim_start_matches('/');
        let mut settings = url.settings.clone();
        let deployment = match (url.scheme.as_str(), hosts.len()) {
            (_, 0) => return Err(invalid("a Redis URL has a host, as in `redis://127.0.0.1`")),
            ("redis" | "rediss", 1) => Deployment::Standalone(hosts.remove(0)),
            ("redis" | "rediss", _) => {
                return Err(invalid(
                    "`redis://` has one host; for several use `redis+sentinel://` or `redis+cluster://`",
                ));
            }
            ("redis+sentinel", _) if path.is_empty() || path.contains('/') => {
                return Err(invalid("after the Sentinels comes the master's name: `redis+sentinel://h1,h2/mymaster`"));
            }
            ("redis+sentinel", _) => Deployment::Sentinel { sentinels: hosts, master: path.to_owned() },
            ("redis+cluster", _) if path.is_empty() => Deployment::Cluster(hosts),
            ("redis+cluster", _) => return Err(invalid("a Cluster has one database only, so its URL has no path")),
            _ => return Err(invalid("the schemes are `redis`, `rediss`, `redis+sentinel` and `redis+cluster`")),
        };
        let mut config = Self::of(deployment);
        config.user.clone_from(&url.user);
        config.password.clone_from(&url.password);
        match config.deployment {
            Deployment::Standalone(_) if path.is_empty() => {}
            Deployment::Standalone(_) => {
                config.database = path
                    .parse()
                    .map_err(|_| invalid("after the host comes the database's number, as in `redis://host/3`"))?;
            }
            Deployment::Sentinel { .. } => {
                config.database = settings.number("database")?.unwrap_or(0);
                config.sentinel_user = settings.text("sentinel_user");
                config.sentinel_password = settings.secret("sentinel_password");
            }
            Deployment::Cluster(_) => {}
        }
        let asked = settings.flag("tls")?;
        let ca_file = settings.text("ca_file").map(PathBuf::from);
        let identity = match (settings.text("cert_file"), settings.text("key_file")) {
            (Some(cert), Some(key)) => Some((cert.into(), key.into())),
            (None, None) => None,
            _ => return Err(invalid("`cert_file` and `key_file` belong together")),
        };
        if url.scheme == "rediss" && asked == Some(false) {
            return Err(invalid("`rediss://` is TLS; for a plain connection write `redis://`"));
        }
        if url.scheme == "rediss" || asked == Some(true) {
            config.tls = Some(Tls { ca_file, identity });
        } else if ca_file.is_some() || identity.is_some() {
            return Err(invalid("a certificate is for TLS: write `rediss://`, or set `tls=true`"));
        }
        config.prefix = settings.text("prefix").unwrap_or(config.prefix);
        config.request_timeout = settings.duration("request_timeout")?.unwrap_or(config.request_timeout);
        config.connect_timeout = settings.duration("connect_timeout")?.unwrap_or(config.connect_timeout);
        config.wait_replicas = settings.number("wait_replicas")?.unwrap_or(0);
        config.token_base = settings.number("token_base")?.unwrap_or(0);
        settings.finish().map_err(|e| e.with_engine("redis"))?;
        config.check()?;
        Ok(config)
    }

    /// The user and password of the servers; without a user it is the default user's password.
    #[must_use]
    pub fn with_credentials(mut self, user: Option<String>, password: Secret) -> Self {
        self.user = user;
        self.password = Some(password);
        self
    }

    /// The user and password of the Sentinels, which have their own.
    #[must_use]
    pub fn with_sentinel_credentials(mut self, user: Option<String>, password: Secret) -> Self {
        self.sentinel_user = user;
        self.sentinel_password = Some(password);
        self
    }

    /// The database's number; 0 unless set, and in a Cluster.
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

    /// Shows the server this certificate, with its key, both in PEM files. Implies TLS.
    #[must_use]
    pub fn with_client_certificate(mut self, cert_file: impl Into<PathBuf>, key_file: impl Into<PathBuf>) -> Self {
        self.tls.get_or_insert_default().identity = Some((cert_file.into(), key_file.into()));
        self
    }

    /// What every key begins with; `fencelock` unless set. Programs with different prefixes share no locks.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The longest one request may take before it counts as not answered; 1 s unless set.
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

    /// How many replicas must acknowledge an acquire, within the request time-out; none unless set.
    ///
    /// It narrows the window in which a fail-over forgets a lock and does not
    /// close it: a replica that has not acknowledged may be promoted.
    #[must_use]
    pub fn with_wait_replicas(mut self, replicas: u32) -> Self {
        self.wait_replicas = replicas;
        self
    }

    /// Every token will be larger than this: the largest that another engine gave out.
    #[must_use]
    pub fn with_token_base(mut self, base: u64) -> Self {
        self.token_base = base;
        self
    }

    /// The rules that the configuration attests, by id.
    #[must_use]
    pub fn with_attested<S: Into<String>>(mut self, ids: impl IntoIterator<Item = S>) -> Self {
        self.attested = ids.into_iter().map(Into::into).collect();
        self
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.deployment, Deployment::Cluster(_))
    }

    /// What cannot be right whatever the servers are.
    pub(crate) fn check(&self) -> Result<()> {
        let hosts = match &self.deployment {
            Deployment::Standalone(address) => std::slice::from_ref(address),
            Deployment::Sentinel { sentinels, .. } => sentinels,
            Deployment::Cluster(nodes) => nodes,
        };
        if hosts.is_empty() || hosts.iter().any(|(host, port)| host.is_empty() || *port == 0) {
            return Err(invalid("every server has a host and a port"));
        }
        if self.is_cluster() && self.database != 0 {
            return Err(invalid("a Cluster has one database only, which is 0"));
        }
        let bad = |c: char| c.is_control() || c.is_whitespace() || matches!(c, '{' | '}');
        if self.prefix.is_empty() || self.prefix.len() > 100 || self.prefix.contains(bad) {
            return Err(invalid("`prefix` has 1 to 100 bytes, and no space, brace or control character"));
        }
        let bounds = Duration::from_millis(10)..=Duration::from_secs(60);
        if !bounds.contains(&self.request_timeout) || !bounds.contains(&self.connect_timeout) {
            return Err(invalid("`request_timeout` and `connect_timeout` are 10 ms to 60 s"));
        }
        if self.token_base > MAX_TOKEN_BASE {
            return Err(invalid("`token_base` is at most 4503599627370496 (2^52), so that Redis can count exactly"));
        }
        if self.user.is_some() && self.password.is_none() {
            return Err(invalid("a user has a password"));
        }
        #[cfg(not(feature = "tls"))]
        if self.tls.is_some() {
            return Err(invalid("TLS needs the cargo feature `tls`, which is not enabled"));
        }
        Ok(())
    }
}

fn invalid(message: &'static str) -> Error {
    Error::new(ErrorKind::InvalidConfig, message).with_engine("redis")
}

impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConfig")
            .field("deployment", &self.deployment)
            .field("user", &self.user)
            .field("password", &self.password)
            .field("sentinel_user", &self.sentinel_user)
            .field("sentinel_password", &self.sentinel_password)
            .field("database", &self.database)
            .field("tls", &self.tls)
            .field("prefix", &self.prefix)
            .field("request_timeout", &self.request_timeout)
            .field("connect_timeout", &self.connect_timeout)
            .field("wait_replicas", &self.wait_replicas)
            .field("token_base", &self.token_base)
            .field("attested", &self.attested)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(url: &str) -> Result<RedisConfig> {
        RedisConfig::from_url(&EngineUrl::parse(url)?)
    }

    #[test]
    fn every_deployment_has_its_url() {
        let one = from("redis://us:pa%40ss@h/3?prefix=app&wait_replicas=1&token_base=7").unwrap();
        assert_eq!(one.deployment, Deployment::Standalone(("h".into(), 6_379)));
        assert_eq!((one.database, one.wait_replicas, one.token_base, one.prefix.as_str()), (3, 1, 7, "app"));
        assert!(!format!("{one:?}").contains("pa@ss"));
        let sentinel = from("redis+sentinel://a,b:1/mymaster?database=2&sentinel_password=hush").unwrap();
        let sentinels = vec![("a".into(), 26_379), ("b".into(), 1)];
        assert_eq!(sentinel.deployment, Deployment::Sentinel { sentinels, master: "mymaster".into() });
        assert_eq!(sentinel.database, 2);
        assert!(!format!("{sentinel:?}").contains("hush"));
        let cluster = from("redis+cluster://a:1,[::1]:2").unwrap();
        assert_eq!(cluster.deployment, Deployment::Cluster(vec![("a".into(), 1), ("::1".into(), 2)]));
    }

    #[test]
    fn what_is_wrong_is_refused() {
        for bad in [
            "redis:",
            "redis://",
            "redis://a,b",
            "redis://a/x",
            "redis://a/-1",
            "redis+sentinel://a",
            "redis+sentinel://a/m/2",
            "redis+cluster://a/1",
            "redis://us@a",
            "redis://a?prefix=a{b}",
            "redis://a?prefix=",
            "redis://a?request_timeout=0s",
            "redis://a?connect_timeout=2m",
            "redis://a?token_base=4503599627370497",
            "redis://a?ca_file=x",
            "redis://a?cert_file=x",
            "redis://a:0",
            "rediss://a?tls=false",
            "redis://a?database=1",
        ] {
            assert_eq!(from(bad).unwrap_err().kind(), ErrorKind::InvalidConfig, "{bad}");
        }
        assert!(from("redis://a?prefx=b").unwrap_err().message().contains("did you mean `prefix`"));
    }

    #[test]
    #[cfg(not(feature = "tls"))]
    fn tls_names_its_feature() {
        assert!(from("rediss://a").unwrap_err().message().contains("`tls`"));
    }
}
