//! What there is to set.

use fencelock_core::{EngineUrl, Error, ErrorKind, Host, Result, Secret, Settings};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

const DEFAULT_PORT: u16 = 2181;
const DEFAULT_ROOT: &str = "/fencelock";

/// Who may read, write and delete the nodes that are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// Everybody who reaches the servers.
    Open,
    /// Whoever authenticates as the same user; for this a user must be set.
    Creator,
}

/// Which ZooKeeper, and how it is used.
///
/// ```
/// use fencelock_core::EngineUrl;
/// use fencelock_zookeeper::ZooKeeperConfig;
/// let url = EngineUrl::parse("zookeeper://a,b:2182,c/app?session=20s").unwrap();
/// assert_eq!(ZooKeeperConfig::from_url(&url).unwrap().root(), "/app");
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct ZooKeeperConfig {
    pub(crate) hosts: Vec<Host>,
    pub(crate) root: String,
    pub(crate) session: Duration,
    pub(crate) request_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) tick_time: Option<Duration>,
    pub(crate) sync_limit: Option<u32>,
    pub(crate) user: Option<(String, Secret)>,
    pub(crate) access: Option<Access>,
    pub(crate) tls: Option<Tls>,
    pub(crate) token_base: u64,
    pub(crate) attested: Vec<String>,
}

/// Files for TLS, in PEM.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tls {
    pub(crate) ca: PathBuf,
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
}

impl ZooKeeperConfig {
    /// The servers at `hosts`, with the defaults. Port 2181 where none is given.
    #[must_use]
    pub fn new(hosts: impl IntoIterator<Item = Host>) -> Self {
        Self {
            hosts: hosts.into_iter().collect(),
            root: DEFAULT_ROOT.to_owned(),
            session: Duration::from_secs(30),
            request_timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(10),
            tick_time: None,
            sync_limit: None,
            user: None,
            access: None,
            tls: None,
            token_base: 0,
            attested: Vec::new(),
        }
    }

    /// From `zookeeper://user:password@host1,host2/root` and its settings: `root` (the path does the same), `session`,
    /// `request_timeout`, `connect_timeout`, `tick_time`, `sync_limit`, `acl` (`open`, `creator`),
    /// `ca_file`, `cert_file`, `key_file` (PEM; the first turns TLS on) and `token_base`.
    ///
    /// # Errors
    /// `InvalidConfig` names the setting that is unknown or wrong.
    pub fn from_url(url: &EngineUrl) -> Result<Self> {
        let mut config = Self::new(url.hosts.iter().cloned());
        let mut settings = url.settings.clone();
        match (url.path.trim_end_matches('/'), settings.text("root")) {
            ("", None) => {}
            ("", Some(root)) => config.root = format!("/{}", root.trim_matches('/')),
            (path, None) => path.clone_into(&mut config.root),
            _ => return Err(invalid("the URL's path and `root` are the same setting: leave one of them out")),
        }
        match (&url.user, &url.password) {
            (Some(user), Some(password)) => config.user = Some((user.clone(), password.clone())),
            (None, None) => {}
            _ => return Err(invalid("digest authentication needs a user and a password")),
        }
        config.take(&mut settings)?;
        settings.finish()?;
        config.check()?;
        Ok(config)
    }

    fn take(&mut self, settings: &mut Settings) -> Result<()> {
        let times = [
            ("session", &mut self.session),
            ("request_timeout", &mut self.request_timeout),
            ("connect_timeout", &mut self.connect_timeout),
        ];
        for (key, place) in times {
            if let Some(time) = settings.duration(key)? {
                *place = time;
            }
        }
        self.tick_time = settings.duration("tick_time")?;
        self.sync_limit = settings.number("sync_limit")?;
        self.access = settings.choice("acl", &["open", "creator"])?.map(|acl| match acl {
            "open" => Access::Open,
            _ => Access::Creator,
        });
        let (ca, cert, key) = (settings.text("ca_file"), settings.text("cert_file"), settings.text("key_file"));
        self.tls = match (ca, cert, key) {
            (None, None, None) => None,
            (Some(ca), None, None) => Some(Tls { ca: ca.into(), identity: None }),
            (Some(ca), Some(cert), Some(key)) => Some(Tls { ca: ca.into(), identity: Some((cert.into(), key.into())) }),
            _ => return Err(invalid("`cert_file` and `key_file` go together, and TLS needs `ca_file`")),
        };
        if let Some(base) = settings.number("token_base")? {
            self.token_base = base;
        }
        Ok(())
    }

    /// The node under which everything is kept, made when missing; `/fencelock` unless set.
    #[must_use]
    pub fn with_root(mut self, root: impl Into<String>) -> Self {
        self.root = root.into();
        self
    }

    /// The node under which everything is kept.
    #[must_use]
    pub fn root(&self) -> &str {
        &self.root
    }

    /// The session's time-out to ask for, which is the ttl of every hold; 30 s
    /// unless set. The servers have bounds of their own: 2 to 20 of their ticks
    /// unless configured otherwise.
    #[must_use]
    pub fn with_session(mut self, timeout: Duration) -> Self {
        self.session = timeout;
        self
    }

    /// The longest one request may take before it counts as not answered; 5 s unless set.
    #[must_use]
    pub fn with_request_timeout(mut self, limit: Duration) -> Self {
        self.request_timeout = limit;
        self
    }

    /// The longest that opening a session may take; 10 s unless set.
    #[must_use]
    pub fn with_connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// The servers' `tickTime` and `syncLimit`, for when they do not tell.
    ///
    /// They tell if the four-letter word `conf` is allowed, which it is not by
    /// default (`4lw.commands.whitelist`). Where a server tells more, that counts.
    #[must_use]
    pub fn with_ticks(mut self, tick_time: Duration, sync_limit: u32) -> Self {
        self.tick_time = Some(tick_time);
        self.sync_limit = Some(sync_limit);
        self
    }

    /// Digest authentication.
    #[must_use]
    pub fn with_user(mut self, user: impl Into<String>, password: Secret) -> Self {
        self.user = Some((user.into(), password));
        self
    }

    /// Who may use the nodes that are made; [`Access::Creator`] if a user is set,
    /// else [`Access::Open`]. All who contend must be able to read each other's nodes.
    #[must_use]
    pub fn with_access(mut self, access: Access) -> Self {
        self.access = Some(access);
        self
    }

    /// TLS, trusting the certificates in the PEM file `ca`. Needs the cargo feature `tls`.
    #[must_use]
    pub fn with_ca_file(mut self, ca: impl Into<PathBuf>) -> Self {
        self.tls.get_or_insert_default().ca = ca.into();
        self
    }

    /// A certificate and its key, PEM files, to show to the servers.
    #[must_use]
    pub fn with_identity(mut self, cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.tls.get_or_insert_default().identity = Some((cert.into(), key.into()));
        self
    }

    /// Every token will be larger than this: the largest that another engine gave out.
    #[must_use]
    pub fn with_token_base(mut self, base: u64) -> Self {
        self.token_base = base;
        self
    }

    /// Rules that are so although they cannot be proved, by id.
    #[must_use]
    pub fn with_attested<S: Into<String>>(mut self, ids: impl IntoIterator<Item = S>) -> Self {
        self.attested = ids.into_iter().map(Into::into).collect();
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.hosts.is_empty() {
            return Err(invalid("a ZooKeeper URL names its servers, as in `zookeeper://host1,host2/app`"));
        }
        let parts = self.root.strip_prefix('/').unwrap_or_default();
        let odd = |part: &str| matches!(part, "" | "." | "..") || part.chars().any(char::is_control);
        if parts.split('/').any(odd) || parts == "zookeeper" || parts.starts_with("zookeeper/") {
            return Err(invalid(format!("`{}` is no node to keep locks under", self.root.escape_debug())));
        }
        let times = [self.session, self.request_timeout, self.connect_timeout, self.tick_time.unwrap_or(self.session)];
        if times.iter().any(|time| time.as_millis() == 0 || time.as_millis() > 0x7fff_ffff) {
            return Err(invalid("`session`, `tick_time` and the time-outs are 1 ms to 24 days"));
        }
        if self.access() == Access::Creator && self.user.is_none() {
            return Err(invalid("`acl=creator` needs a user and a password"));
        }
        if self.tls.is_some() && !cfg!(feature = "tls") {
            return Err(invalid("TLS needs the cargo feature `tls` of the crate `fencelock-zookeeper`"));
        }
        Ok(())
    }

    pub(crate) fn access(&self) -> Access {
        let usual = if self.user.is_some() { Access::Creator } else { Access::Open };
        self.access.unwrap_or(usual)
    }

    pub(crate) fn addresses(&self) -> impl Iterator<Item = (String, u16)> + '_ {
        self.hosts.iter().map(|host| (host.name.clone(), host.port.unwrap_or(DEFAULT_PORT)))
    }
}

impl fmt::Debug for ZooKeeperConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZooKeeperConfig")
            .field("hosts", &self.hosts)
            .field("root", &self.root)
            .field("session", &self.session)
            .field("request_timeout", &self.request_timeout)
            .field("user", &self.user)
            .field("access", &self.access())
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

pub(crate) fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidConfig, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> Result<ZooKeeperConfig> {
        ZooKeeperConfig::from_url(&EngineUrl::parse(url).unwrap())
    }

    #[test]
    fn a_url_says_it_all() {
        let url = "zk://joe:p%3Aw@a,[::1]:7/x/y/?session=4s&tick_time=2s&sync_limit=5&acl=open&request_timeout=1s";
        let config = config(url).unwrap();
        let addresses: Vec<_> = config.addresses().collect();
        assert_eq!(config.root(), "/x/y");
        assert_eq!(addresses, [("a".to_owned(), 2181), ("::1".to_owned(), 7)]);
        assert_eq!((config.session, config.sync_limit), (Duration::from_secs(4), Some(5)));
        assert_eq!((config.access(), config.user.clone().unwrap().1.reveal()), (Access::Open, "p:w"));
        assert!(!format!("{config:?}").contains("p:w"), "{config:?}");
    }

    #[test]
    fn what_is_wrong_is_refused() {
        for (url, says) in [
            ("zookeeper://", "names its servers"),
            ("zookeeper://a/zookeeper/x", "no node"),
            ("zookeeper://a/x//y", "no node"),
            ("zookeeper://a/..", "no node"),
            ("zookeeper://a?root=", "no node"),
            ("zookeeper://a/x?root=y", "same setting"),
            ("zookeeper://a?sesion=4s", "did you mean `session`"),
            ("zookeeper://a?session=0s", "1 ms"),
            ("zookeeper://a?acl=creator", "user"),
            ("zookeeper://joe@a", "password"),
            ("zookeeper://a?cert_file=x", "`ca_file`"),
        ] {
            let e = config(url).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::InvalidConfig);
            assert!(e.message().contains(says), "{url}: {e}");
        }
        assert_eq!(config("zookeeper://a").unwrap().access(), Access::Open);
        assert_eq!(config("zookeeper://a:1/").unwrap().root(), DEFAULT_ROOT);
        for root in ["/x/y", "x/y/"] {
            assert_eq!(config(&format!("zookeeper://a?root={root}")).unwrap().root(), "/x/y");
        }
        assert_eq!(config("zookeeper://j:p@a").unwrap().access(), Access::Creator);
    }
}
