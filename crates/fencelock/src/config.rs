//! Configuration from a file and the environment.

mod credentials;
mod dictionary;
mod document;
mod environment;
mod file;
mod keys;
mod layer;
mod names;
#[cfg(test)]
mod reference;
mod url;
mod value;

pub(crate) use credentials::{from_files, from_url, into_url, refuse};
pub use environment::Environment;
pub(crate) use layer::{Layer, Origins, ids, invalid, placed};
pub(crate) use names::Names;
pub(crate) use url::parse as parse_url;

use crate::Builder;
use crate::engines::table_of;
use document::{Document, Table};
use environment::Variable;
use fencelock_core::{EngineUrl, Error, LockClient, Result, Secret};
use std::io;
use std::path::{Path, PathBuf};

/// The configuration of a client: a file and the environment.
///
/// ```
/// use fencelock::{Config, Environment};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> fencelock::Result<()> {
/// let file = "[lock]\nurl = 'memory:'\nttl = '10s'";
/// let environment = Environment::new([("FENCELOCK_WAIT_AT_MOST", "5s")]);
/// let config = Config::from_toml(file, "fencelock.toml")?.with_environment(&environment)?;
/// let locks = config.connect().await?;
/// # drop(locks);
///
/// // The nearest right key, and where the wrong one is.
/// let e = Config::from_toml("[lock]\ntll = '10s'", "fencelock.toml").unwrap_err();
/// assert_eq!(e.message(), "fencelock.toml:2: unknown setting `tll`; did you mean `ttl`?");
/// # Ok(()) }
/// ```
///
/// # Precedence
/// Weakest first: the defaults, the file, the environment, URL parameters (and
/// the user and password in the URL), code (the methods of [`Builder`]). What
/// `attest`, `require_capability` and `forbid` list counts together from all of them.
///
/// # The file
/// One file is read, the first that there is:
/// 1. the one given to [`from_file`](Self::from_file), or named by the variable
///    `FENCELOCK_CONFIG`; it must be there;
/// 2. `fencelock.toml` in the current directory;
/// 3. `fencelock/fencelock.toml` in `$XDG_CONFIG_HOME`, or else in `~/.config`;
/// 4. `/etc/fencelock.toml`.
///
/// It is strict: a key, a value or a table that nobody knows is an error that
/// names the file, the line and the nearest right one. Of the tables of engines
/// only the one that the URL picks is used, so that one file can hold several; of
/// the others the keys are checked, and the values when their engine is picked.
/// Paths are relative to the current directory. It is a regular file of 1 MiB at
/// most: a pipe could keep the program waiting for ever. `/dev/null` is an empty one.
///
/// # The environment
/// `FENCELOCK_TTL=10s` says the same as `ttl = "10s"` in `[lock]`, and
/// `FENCELOCK_SQLITE_BUSY_TIMEOUT=200ms` the same as `busy_timeout = "200ms"` in
/// `[lock.sqlite]`; lists are separated by commas. Any other variable that
/// begins with `FENCELOCK_` is an error, except `FENCELOCK_CONFIG`,
/// `FENCELOCK_LOG` (the command line's) and `FENCELOCK_NAME`, `FENCELOCK_TOKEN` and
/// `FENCELOCK_CLAIM` (which `fencelock run` sets for its command).
///
/// # Passwords
/// In the URL, as `password`, or in a file that `password_file` names, which is
/// read when the client connects, without the line end after it: a regular file of
/// 64 KiB at most. An engine sees
/// all three as [`EngineUrl::password`](crate::EngineUrl::password). No error
/// and no `Debug` shows one.
///
/// # Every setting
#[doc = "```toml"]
#[doc = include_str!("../reference.toml")]
#[doc = "```"]
#[derive(Clone, Debug, Default)]
#[must_use = "connect it to get a client"]
pub struct Config {
    path: Option<PathBuf>,
    common: Layer,
    tables: Vec<Table>,
    environment: Layer,
    variables: Vec<Variable>,
    url: Option<Secret>,
}

impl Config {
    /// The file that is found as [above](Self#the-file), if there is one, and the process's environment.
    ///
    /// # Errors
    /// `InvalidConfig` names the file, the line and the key, or the variable.
    pub fn load() -> Result<Self> {
        Self::load_in(&Environment::of_process())
    }

    /// As [`load`](Self::load), with an environment to choose.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    pub fn load_in(environment: &Environment) -> Result<Self> {
        let found = match environment.named_file()? {
            Some(path) => Some(Self::read(&path).map_err(|e| placed("FENCELOCK_CONFIG", e))?),
            None => Self::first(environment.usual_files())?,
        };
        found.unwrap_or_default().with_environment(environment)
    }

    fn first(paths: Vec<PathBuf>) -> Result<Option<Self>> {
        for path in paths {
            match file::read_text(&path, LONGEST) {
                Ok(text) => return Self::parsed(&text, path).map(Some),
                Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
                Err(e) => return Err(unreadable(&path, &e)),
            }
        }
        Ok(None)
    }

    /// The file at `path`, which must be there, without the environment.
    ///
    /// # Errors
    /// `InvalidConfig` names the file, the line and the key.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        Self::read(path.as_ref())
    }

    fn read(path: &Path) -> Result<Self> {
        let text = file::read_text(path, LONGEST).map_err(|e| unreadable(path, &e))?;
        Self::parsed(&text, path.to_owned())
    }

    fn parsed(text: &str, path: PathBuf) -> Result<Self> {
        let config = Self::from_toml(text, path.display().to_string())?;
        Ok(Self { path: Some(path), ..config })
    }

    /// From the text of a file, which errors call `origin`.
    ///
    /// # Errors
    /// `InvalidConfig` names the line and the key.
    pub fn from_toml(text: impl AsRef<str>, origin: impl AsRef<str>) -> Result<Self> {
        let Document { common, tables } = Document::parse(text.as_ref(), origin.as_ref())?;
        Ok(Self { common, tables, ..Self::default() })
    }

    /// Lays the variables of `environment` on top.
    ///
    /// # Errors
    /// `InvalidConfig` names a variable that is not UTF-8; one that is unknown is told at connect.
    pub fn with_environment(mut self, environment: &Environment) -> Result<Self> {
        (self.environment, self.variables) = environment.settings()?;
        Ok(self)
    }

    /// Uses this URL instead of the one in file and environment.
    pub fn with_url(mut self, url: impl Into<String>) -> Self {
        self.url = Some(Secret::new(url));
        self
    }

    /// The file that was read, if there was one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Connects; the same as [`builder`](Self::builder) and [`Builder::connect`].
    ///
    /// # Errors
    /// As for [`Builder::connect`].
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing locked.
    pub async fn connect(self) -> Result<LockClient> {
        self.builder().connect().await
    }

    /// For code to count over what is configured. What is wrong is told at connect.
    pub fn builder(mut self) -> Builder {
        let (url, place) = self.take_url();
        let engine = url.as_ref().map(|url| table_of(&url.scheme)).unwrap_or_default();
        let mut names = Names::default();
        let (mut of_engine, mut of_environment) = (Layer::default(), Layer::default());
        for table in self.tables {
            if table.engine == engine {
                of_engine = table.layer;
            } else {
                names.tables.push(table);
            }
        }
        for variable in self.variables {
            match variable.key_of(engine) {
                Some(key) => of_environment.set(&key, variable.value.as_str(), &variable.name),
                None => names.variables.push(variable),
            }
        }
        let layers = vec![self.common, of_engine, self.environment, of_environment];
        Builder::configured(url, place, layers, names)
    }

    /// The URL that counts, and where it was written.
    fn take_url(&mut self) -> (Result<EngineUrl>, Option<String>) {
        let (file, environment) = (self.common.settings.text("url"), self.environment.settings.text("url"));
        let place = |layer: &Layer| layer.origins.of("url").map(str::to_owned);
        let (text, place) = match (&self.url, environment, file) {
            (Some(url), ..) => (url.reveal().to_owned(), None),
            (_, Some(url), _) => (url, place(&self.environment)),
            (_, _, Some(url)) => (url, place(&self.common)),
            (None, None, None) => return (Err(self.no_url()), None),
        };
        let url = parse_url(&text);
        let located = |e| place.iter().fold(e, |e, place| placed(&format!("{place}: `url`"), e));
        (url.map_err(located), place)
    }

    fn no_url(&self) -> Error {
        let read = self.path.as_ref().map_or_else(
            || "no fencelock.toml was found".to_owned(),
            |path| format!("`{}` has no `url` in `[lock]`", path.display()),
        );
        invalid(format!(
            "no lock service: {read}, and FENCELOCK_URL is not set; set it to `sqlite:locks.db` for instance"
        ))
    }
}

/// No configuration is longer; what is, is another file.
const LONGEST: u64 = 1024 * 1024;

fn unreadable(path: &Path, e: &io::Error) -> Error {
    invalid(format!("cannot read `{}`: {e}", path.display()))
}
