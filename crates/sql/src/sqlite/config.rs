//! What there is to set.

use fencelock_core::{Clock, EngineUrl, Error, ErrorKind, Result};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const SYNCHRONOUS: [&str; 4] = ["full", "extra", "normal", "off"];

/// When SQLite waits for the disk: its `PRAGMA synchronous`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Synchronous {
    /// Never: a power loss may damage the file.
    Off,
    /// At checkpoints: a power loss may forget locks that were granted.
    Normal,
    /// At every commit.
    #[default]
    Full,
    /// At every commit, and for the directory too.
    Extra,
}

/// Which SQLite file, and how it is used.
///
/// ```
/// use fencelock_core::EngineUrl;
/// use fencelock_sql::sqlite::SqliteConfig;
/// let url = EngineUrl::parse("sqlite:locks.db?busy_timeout=200ms").unwrap();
/// assert_eq!(SqliteConfig::from_url(&url).unwrap().path().to_str(), Some("locks.db"));
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct SqliteConfig {
    pub(crate) path: PathBuf,
    pub(crate) request_timeout: Duration,
    busy_timeout: Option<Duration>,
    pub(crate) synchronous: Synchronous,
    pub(crate) token_base: u64,
    pub(crate) create: bool,
    pub(crate) attested: Vec<String>,
    pub(crate) clock: Clock,
}

impl SqliteConfig {
    /// The file at `path`, with the defaults.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            request_timeout: Duration::from_secs(2),
            busy_timeout: None,
            synchronous: Synchronous::Full,
            token_base: 0,
            create: true,
            attested: Vec::new(),
            clock: Clock::system(),
        }
    }

    /// From `sqlite:PATH` or `sqlite:///ABSOLUTE/PATH` and its settings: `request_timeout`,
    /// `busy_timeout`, `synchronous`, `token_base` and `create`.
    ///
    /// # Errors
    /// `InvalidConfig` names the setting that is unknown or wrong.
    pub fn from_url(url: &EngineUrl) -> Result<Self> {
        if url.user.is_some() || url.password.is_some() || !url.hosts.is_empty() {
            let message = "a SQLite URL has no host: write `sqlite:locks.db` or `sqlite:///absolute/path/locks.db`";
            return Err(invalid(message));
        }
        let mut config = Self::new(&url.path);
        let mut settings = url.settings.clone();
        if let Some(limit) = settings.duration("request_timeout")? {
            config.request_timeout = limit;
        }
        config.busy_timeout = settings.duration("busy_timeout")?;
        config.synchronous = match settings.choice("synchronous", &SYNCHRONOUS)? {
            Some("off") => Synchronous::Off,
            Some("normal") => Synchronous::Normal,
            Some("extra") => Synchronous::Extra,
            _ => Synchronous::Full,
        };
        if let Some(base) = settings.number("token_base")? {
            config.token_base = base;
        }
        if let Some(create) = settings.flag("create")? {
            config.create = create;
        }
        settings.finish()?;
        config.check()?;
        Ok(config)
    }

    /// The longest one statement may take before it counts as not answered; 2 s unless set.
    #[must_use]
    pub fn with_request_timeout(mut self, limit: Duration) -> Self {
        self.request_timeout = limit;
        self
    }

    /// How long a statement waits for another writer of the file; 1.5 s unless
    /// set, and at most three quarters of the request time-out.
    #[must_use]
    pub fn with_busy_timeout(mut self, limit: Duration) -> Self {
        self.busy_timeout = Some(limit);
        self
    }

    /// When SQLite waits for the disk; anything below [`Synchronous::Full`] lowers the level.
    #[must_use]
    pub fn with_synchronous(mut self, synchronous: Synchronous) -> Self {
        self.synchronous = synchronous;
        self
    }

    /// Every token will be larger than this: the largest that another engine gave out.
    #[must_use]
    pub fn with_token_base(mut self, base: u64) -> Self {
        self.token_base = base;
        self
    }

    /// Whether a file that does not exist is created; it is unless set.
    #[must_use]
    pub fn with_create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// The rules that the configuration attests, by id.
    #[must_use]
    pub fn with_attested<S: Into<String>>(mut self, ids: impl IntoIterator<Item = S>) -> Self {
        self.attested = ids.into_iter().map(Into::into).collect();
        self
    }

    /// The clock for `inspect` and `list`. For tests; claims bring their own.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// The path as it was given.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn busy_timeout(&self) -> Duration {
        self.busy_timeout.unwrap_or(Duration::from_millis(1500).min(self.longest_busy_timeout()))
    }

    fn longest_busy_timeout(&self) -> Duration {
        self.request_timeout / 4 * 3
    }

    /// What cannot be right whatever the file is.
    pub(crate) fn check(&self) -> Result<()> {
        let path = self.path.to_str().ok_or_else(|| invalid("the path of a SQLite file is UTF-8"))?;
        if path.is_empty() || path == ":memory:" {
            let message = "a lock file has a path, as in `sqlite:locks.db`; for locks in one process use `memory:`";
            return Err(invalid(message));
        }
        if path.starts_with("file:") {
            return Err(invalid(
                "the path of a SQLite file is plain: `sqlite:locks.db`, without `file:`; for locks in one process use `memory:`",
            ));
        }
        if path.contains('\0') {
            return Err(invalid("the path of a SQLite file has no NUL"));
        }
        let (least, most) = (Duration::from_millis(10), Duration::from_secs(3600));
        if self.request_timeout < least || self.request_timeout > most {
            return Err(invalid("`request_timeout` is 10 ms to 1 h"));
        }
        // A busy answer must come before the request is given up, since it is a definite no.
        if self.busy_timeout() > self.longest_busy_timeout() {
            return Err(invalid("`busy_timeout` is at most three quarters of `request_timeout`"));
        }
        if self.token_base >= i64::MAX.unsigned_abs() {
            return Err(invalid("`token_base` is below 9223372036854775807"));
        }
        Ok(())
    }
}

fn invalid(message: &'static str) -> Error {
    Error::new(ErrorKind::InvalidConfig, message).with_engine("sqlite")
}

impl fmt::Debug for SqliteConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteConfig")
            .field("path", &self.path)
            .field("request_timeout", &self.request_timeout)
            .field("busy_timeout", &self.busy_timeout())
            .field("synchronous", &self.synchronous)
            .field("token_base", &self.token_base)
            .field("create", &self.create)
            .field("attested", &self.attested)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(url: &str) -> Result<SqliteConfig> {
        SqliteConfig::from_url(&EngineUrl::parse(url)?)
    }

    #[test]
    fn every_way_to_write_a_path() {
        for (url, path) in
            [("sqlite:locks.db", "locks.db"), ("sqlite:/abs/l.db", "/abs/l.db"), ("sqlite:///abs/l.db", "/abs/l.db")]
        {
            assert_eq!(from(url).unwrap().path(), Path::new(path), "{url}");
        }
    }

    #[test]
    fn what_is_no_file_is_refused_and_says_what_to_use() {
        for url in ["sqlite:", "sqlite::memory:", "sqlite:file:x.db", "sqlite:file:x?mode=memory"] {
            let e = from(url).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{url}");
            if !url.contains('?') {
                assert!(e.message().contains("memory:"), "{e}");
            }
        }
        assert!(from("sqlite://locks.db").unwrap_err().message().contains("sqlite:///"));
    }

    #[test]
    fn settings_are_strict() {
        let config = from("sqlite:l.db?request_timeout=1s&busy_timeout=5ms&synchronous=off&token_base=7&create=false");
        let config = config.unwrap();
        assert_eq!((config.request_timeout, config.busy_timeout()), (Duration::from_secs(1), Duration::from_millis(5)));
        assert_eq!((config.synchronous, config.token_base, config.create), (Synchronous::Off, 7, false));
        let near = from("sqlite:l.db?synchronus=off").unwrap_err();
        assert!(near.message().contains("`synchronous`"), "{near}");
        for bad in ["request_timeout=0s", "busy_timeout=2s", "token_base=9223372036854775807", "request_timeout=2h"] {
            let e = from(&format!("sqlite:l.db?{bad}")).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{bad}");
        }
        assert_eq!(from("sqlite:l.db?request_timeout=100ms").unwrap().busy_timeout(), Duration::from_millis(75));
    }
}
