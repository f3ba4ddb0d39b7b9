//! What there is to set.

use fencelock_core::{EngineUrl, Error, ErrorKind, Result, Secret};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The port that etcd serves clients on, unless one is written.
const PORT: u16 = 2379;

/// Which etcd, and how it is used.
///
/// ```
/// use fencelock_core::EngineUrl;
/// use fencelock_etcd::EtcdConfig;
/// let url = EngineUrl::parse("etcd://user:secret@10.0.0.1,10.0.0.2:2479/app?request_timeout=1s").unwrap();
/// let config = EtcdConfig::from_url(&url).unwrap();
/// assert_eq!(config.endpoints(), ["10.0.0.1:2379", "10.0.0.2:2479"]);
/// assert_eq!(config.prefix(), "app");
/// assert!(!format!("{config:?}").contains("secret"));
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct EtcdConfig {
    endpoints: Vec<String>,
    prefix: String,
    pub(crate) user: Option<(String, Secret)>,
    pub(crate) request_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) tls: Option<Tls>,
    pub(crate) attested: Vec<String>,
}

/// How connections are encrypted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tls {
    /// The authorities to trust instead of the system's.
    pub(crate) ca_file: Option<PathBuf>,
    /// Our own certificate and its key, for servers that ask for one.
    pub(crate) cert_file: Option<PathBuf>,
    pub(crate) key_file: Option<PathBuf>,
    /// The name in the server's certificate, where it is not the host's.
    pub(crate) server_name: Option<String>,
}

impl EtcdConfig {
    /// The members at `endpoints`, each `host:port`, with the defaults. Name several: one that is down is passed over.
    #[must_use]
    pub fn new<S: Into<String>>(endpoints: impl IntoIterator<Item = S>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            prefix: "fencelock".to_owned(),
            user: None,
            request_timeout: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(1),
            tls: None,
            attested: Vec::new(),
        }
    }

    /// From `etcd://user:password@host1,host2:port/prefix` and its settings: `prefix` (the
    /// path does the same), `request_timeout`, `connect_timeout`, `tls`, `ca_file`, `cert_file`, `key_file` and `server_name`.
    ///
    /// # Errors
    /// `InvalidConfig` names the setting that is unknown or wrong.
    pub fn from_url(url: &EngineUrl) -> Result<Self> {
        let endpoint = |host: &fencelock_core::Host| match host.port {
            Some(_) => host.to_string(),
            None => format!("{host}:{PORT}"),
        };
        let mut config = Self::new(url.hosts.iter().map(endpoint));
        let prefix = url.path.trim_matches('/');
        if !prefix.is_empty() {
            prefix.clone_into(&mut config.prefix);
        }
        config.user = match (&url.user, &url.password) {
            (Some(user), Some(password)) => Some((user.clone(), password.clone())),
            (None, None) => None,
            _ => return Err(invalid("etcd wants a user and a password, or neither")),
        };
        let mut settings = url.settings.clone();
        match settings.text("prefix") {
            Some(_) if !prefix.is_empty() => {
                return Err(invalid("the URL's path and `prefix` are the same setting: leave one of them out"));
            }
            Some(prefix) => config = config.with_prefix(prefix.trim_start_matches('/')),
            None => {}
        }
        if let Some(limit) = settings.duration("request_timeout")? {
            config.request_timeout = limit;
        }
        if let Some(limit) = settings.duration("connect_timeout")? {
            config.connect_timeout = limit;
        }
        let encrypted = settings.flag("tls")?;
        let tls = Tls {
            ca_file: settings.text("ca_file").map(PathBuf::from),
            cert_file: settings.text("cert_file").map(PathBuf::from),
            key_file: settings.text("key_file").map(PathBuf::from),
            server_name: settings.text("server_name"),
        };
        settings.finish()?;
        let named =
            tls.ca_file.is_some() || tls.cert_file.is_some() || tls.key_file.is_some() || tls.server_name.is_some();
        config.tls = match encrypted {
            Some(false) if named => return Err(invalid("`tls=false` and files for it contradict each other")),
            Some(false) => None,
            Some(true) => Some(tls),
            None => named.then_some(tls),
        };
        config.check()?;
        Ok(config)
    }

    /// What every key begins with; `fencelock` unless set. Clients of one set of locks use the same.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl AsRef<str>) -> Self {
        prefix.as_ref().trim_end_matches('/').clone_into(&mut self.prefix);
        self
    }

    /// Who we are, for a cluster with authentication. An expired token is renewed.
    #[must_use]
    pub fn with_user(mut self, user: impl Into<String>, password: Secret) -> Self {
        self.user = Some((user.into(), password));
        self
    }

    /// The longest one request may take before it counts as not answered, over all members that are tried; 2 s unless set.
    #[must_use]
    pub fn with_request_timeout(mut self, limit: Duration) -> Self {
        self.request_timeout = limit;
        self
    }

    /// The longest that connecting to one member may take; 1 s unless set.
    #[must_use]
    pub fn with_connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// Encrypts connections, trusting the system's authorities. Needs the cargo feature `tls`, as do the three below.
    #[must_use]
    pub fn with_tls(mut self) -> Self {
        self.tls.get_or_insert_default();
        self
    }

    /// Encrypts connections, trusting the authorities in this PEM file and no others.
    #[must_use]
    pub fn with_ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.tls.get_or_insert_default().ca_file = Some(path.into());
        self
    }

    /// Shows the server a certificate of ours, from PEM files.
    #[must_use]
    pub fn with_identity(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        let tls = self.tls.get_or_insert_default();
        tls.cert_file = Some(certificate.into());
        tls.key_file = Some(key.into());
        self
    }

    /// Expects this name in the server's certificate instead of the host's.
    #[must_use]
    pub fn with_server_name(mut self, name: impl Into<String>) -> Self {
        self.tls.get_or_insert_default().server_name = Some(name.into());
        self
    }

    /// The rules that the configuration attests, by id.
    #[must_use]
    pub fn with_attested<S: Into<String>>(mut self, ids: impl IntoIterator<Item = S>) -> Self {
        self.attested = ids.into_iter().map(Into::into).collect();
        self
    }

    /// Where the members are.
    #[must_use]
    pub fn endpoints(&self) -> &[String] {
        &self.endpoints
    }

    /// What every key begins with.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// What cannot be right whatever etcd says.
    pub(crate) fn check(&self) -> Result<()> {
        if self.endpoints.is_empty() {
            return Err(invalid(
                "an etcd URL names at least one member, as in `etcd://10.0.0.1,10.0.0.2,10.0.0.3/app`",
            ));
        }
        if self.prefix.is_empty() || self.prefix.chars().any(char::is_control) {
            return Err(invalid("the prefix of the keys is not empty and has no control characters"));
        }
        if self.prefix.split('/').skip(1).any(|part| matches!(part, "l" | "v")) {
            return Err(invalid(format!(
                "no part of the prefix `{}` but the first may be `l` or `v`: the keys of a shorter prefix go on so",
                self.prefix
            )));
        }
        let (least, most) = (Duration::from_millis(10), Duration::from_secs(3600));
        for (what, limit) in [("request_timeout", self.request_timeout), ("connect_timeout", self.connect_timeout)] {
            if limit < least || limit > most {
                return Err(invalid(format!("`{what}` is 10 ms to 1 h")));
            }
        }
        if let Some(tls) = &self.tls {
            if tls.cert_file.is_some() != tls.key_file.is_some() {
                return Err(invalid("`cert_file` and `key_file` go together"));
            }
            if cfg!(not(feature = "tls")) {
                return Err(invalid("encrypted connections need the cargo feature `tls`, which is not enabled"));
            }
        }
        Ok(())
    }
}

pub(crate) fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidConfig, message).with_engine("etcd")
}

impl fmt::Debug for EtcdConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = |path: &Option<PathBuf>| path.as_deref().map(Path::to_owned);
        f.debug_struct("EtcdConfig")
            .field("endpoints", &self.endpoints)
            .field("prefix", &self.prefix)
            .field("user", &self.user.as_ref().map(|(user, _)| user))
            .field("request_timeout", &self.request_timeout)
            .field("connect_timeout", &self.connect_timeout)
            .field("ca_file", &self.tls.as_ref().and_then(|tls| path(&tls.ca_file)))
            .field("tls", &self.tls.is_some())
            .field("attested", &self.attested)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(url: &str) -> Result<EtcdConfig> {
        EtcdConfig::from_url(&EngineUrl::parse(url)?)
    }

    #[test]
    fn every_setting_is_taken_and_checked() {
        let config = from("etcd://[::1],b:1/x/y/?request_timeout=300ms&connect_timeout=200ms&tls=false").unwrap();
        assert_eq!(config.endpoints(), ["[::1]:2379", "b:1"]);
        assert_eq!((config.prefix(), config.request_timeout), ("x/y", Duration::from_millis(300)));
        assert!(config.tls.is_none());
        assert_eq!(from("etcd://a").unwrap().prefix(), "fencelock");
        assert_eq!(from("etcd://a?prefix=/x/").unwrap().prefix(), "x");
        assert_eq!(from("etcd://a/l/lv").unwrap().prefix(), "l/lv");
        for bad in [
            "etcd:",
            "etcd://",
            "etcd://user@a",
            "etcd://a/x?prefix=y",
            "etcd://a?prefix=",
            "etcd://a/x/l",
            "etcd://a/x/v/y",
            "etcd://a?request_timeout=0s",
            "etcd://a?connect_timeout=2h",
            "etcd://a?tls=false&ca_file=x",
            "etcd://a?tls=true&cert_file=x",
        ] {
            assert_eq!(from(bad).unwrap_err().kind(), ErrorKind::InvalidConfig, "{bad}");
        }
        let near = from("etcd://a?request_timout=1s").unwrap_err();
        assert!(near.message().contains("`request_timeout`"), "{near}");
    }

    #[test]
    fn encryption_needs_its_feature() {
        let encrypted = from("etcd://a?ca_file=ca.pem");
        assert_eq!(encrypted.is_ok(), cfg!(feature = "tls"));
    }
}
