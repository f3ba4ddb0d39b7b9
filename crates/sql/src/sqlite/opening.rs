//! Opening the file: created where it may be, verified and probed each time.

use super::SqliteConfig;
use super::failure::Failure;
use super::frame::{Frame, unix_now};
use super::probe::Probe;
use super::schema;
use fencelock_core::{Error, ErrorKind, Guarantees, Level, Result};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions as _, SqliteConnection};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long to pause before opening is tried again while another opens it too.
const PAUSE: Duration = Duration::from_millis(10);

/// Opens connections that are alike.
pub(crate) struct Opening {
    pub(crate) config: SqliteConfig,
    pub(crate) frame: Frame,
    /// Absolute, so that a change of the working directory changes nothing.
    path: PathBuf,
    guarantees: Mutex<Arc<Guarantees>>,
    /// Whether there was any exclusion when the file was first opened; without it
    /// nothing goes on that began with it.
    had_level: bool,
}

/// A connection, and which file it has open.
pub(crate) struct Opened {
    pub(crate) connection: SqliteConnection,
    identity: Option<Identity>,
}

/// Which file the path leads to, which log lies beside it, and how many names the
/// file has. While a connection is open none of these changes of itself: another
/// log means that somebody deleted ours, and another name may have a log of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    file: Inode,
    log: Option<Inode>,
    names: u64,
}

/// Device and inode.
type Inode = (u64, u64);

impl Opening {
    /// The smallest token that may be given out now.
    pub(crate) fn least_token(&self) -> i64 {
        let base = i64::try_from(self.config.token_base).unwrap_or(i64::MAX);
        unix_now().max(base.saturating_add(1))
    }

    /// Opens the first connection.
    pub(crate) async fn first(config: SqliteConfig) -> Result<(Self, Opened, PathBuf)> {
        config.check()?;
        let path = std::path::absolute(&config.path)
            .map_err(|e| Error::new(ErrorKind::InvalidConfig, "the path cannot be made absolute").with_source(e))?;
        let frame = Frame::here();
        let (opened, probe) = within(&config, open(&config, &frame, &path, true)).await?;
        let found = probe.guarantees(&config)?;
        let (had_level, guarantees) = (found.level().is_some(), Mutex::new(Arc::new(found)));
        Ok((Self { config, frame, path, guarantees, had_level }, opened, probe.file))
    }

    /// Opens another connection. A file that is gone is not made again: whoever
    /// held a lock in it may still believe so.
    pub(crate) async fn again(&self) -> Result<Opened> {
        let outcome = within(&self.config, open(&self.config, &self.frame, &self.path, false)).await;
        let (opened, probe) = outcome.map_err(|e| match e.kind() {
            ErrorKind::InvalidConfig => {
                Error::new(ErrorKind::Unavailable, e.message().to_owned()).with_engine("sqlite")
            }
            _ => e,
        })?;
        let found = Arc::new(probe.guarantees_again(&self.config));
        // What is found is kept, so that whoever asks sees why nothing is locked any more.
        let given = if self.had_level { found.require(Level::Advisory) } else { Ok(()) };
        *self.guarantees.lock().unwrap_or_else(PoisonError::into_inner) = found;
        given.map(|()| opened)
    }

    /// Opens the file anew to see what it is now.
    pub(crate) async fn probe(&self) -> Result<Arc<Guarantees>> {
        match self.again().await {
            Err(e) if e.kind() != ErrorKind::Refused => Err(e),
            _ => Ok(self.guarantees()),
        }
    }

    pub(crate) fn guarantees(&self) -> Arc<Guarantees> {
        Arc::clone(&self.guarantees.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether the path still leads to the file that `opened` has open.
    pub(crate) fn is_current(&self, opened: &Opened) -> bool {
        opened.identity == identity(&self.path)
    }
}

async fn within<T>(config: &SqliteConfig, work: impl Future<Output = Result<T, Failure>>) -> Result<T> {
    let limit = config.request_timeout;
    match tokio::time::timeout(limit, work).await {
        Ok(outcome) => outcome.map_err(|failure| failure.error.with_operation("connect")),
        Err(_) => Err(Failure::no_answer(limit).error.with_operation("connect")),
    }
}

async fn open(config: &SqliteConfig, frame: &Frame, path: &Path, first: bool) -> Result<(Opened, Probe), Failure> {
    let create = first && config.create;
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(create)
        .busy_timeout(config.busy_timeout())
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(match config.synchronous {
            super::Synchronous::Off => SqliteSynchronous::Off,
            super::Synchronous::Normal => SqliteSynchronous::Normal,
            super::Synchronous::Full => SqliteSynchronous::Full,
            super::Synchronous::Extra => SqliteSynchronous::Extra,
        })
        .thread_name(|_| "fencelock-sqlite".to_owned())
        .disable_statement_logging();
    // SQLite itself would fall back to reading, and nobody would be told before the first acquire.
    if path.exists() && is_denied(path) {
        return Err(denied(path));
    }
    let attempts = async {
        loop {
            // SQLite does not wait by itself while another connection turns the log on.
            match attempt(&options, frame).await {
                Err(schema::Shape::Failed(cause)) if Failure::is_busy(&cause) => tokio::time::sleep(PAUSE).await,
                Err(schema::Shape::Failed(cause)) if Failure::is_cannot_open(&cause) => {
                    return Err(why_not(path, create, cause));
                }
                outcome => return outcome.map_err(Failure::from),
            }
        }
    };
    let patience = config.request_timeout.saturating_sub(PAUSE * 2);
    let (connection, probe) = match tokio::time::timeout(patience, attempts).await {
        Ok(outcome) => outcome?,
        Err(_) => return Err(Failure::new(ErrorKind::Unavailable, "the file stayed locked by another writer")),
    };
    Ok((Opened { connection, identity: identity(path) }, probe))
}

async fn attempt(options: &SqliteConnectOptions, frame: &Frame) -> Result<(SqliteConnection, Probe), schema::Shape> {
    let mut connection = options.connect().await?;
    schema::ensure(&mut connection).await?;
    let probe = Probe::run(&mut connection, frame).await?;
    // From here on the session waits for other writers, without keeping the connection's thread.
    sqlx::query("PRAGMA busy_timeout = 0").fetch_all(&mut connection).await?;
    Ok((connection, probe))
}

/// SQLite has one code for everything that keeps a file from being opened.
fn why_not(path: &Path, create: bool, cause: sqlx::Error) -> Failure {
    let directory = path.parent().filter(|parent| !parent.is_dir());
    let (kind, message) = if let Some(directory) = directory {
        (ErrorKind::InvalidConfig, format!("the directory {} does not exist: create it", directory.display()))
    } else if path.is_dir() {
        (ErrorKind::InvalidConfig, format!("{} is a directory: name a file in it", path.display()))
    } else if !create && !path.exists() {
        (ErrorKind::InvalidConfig, format!("{} does not exist, and is not to be created", path.display()))
    } else if is_denied(path) {
        return denied(path).caused_by(cause);
    } else {
        (ErrorKind::Unavailable, format!("{} cannot be opened", path.display()))
    };
    Failure::new(kind, message).caused_by(cause)
}

fn denied(path: &Path) -> Failure {
    let message = format!("{} cannot be written: check its permissions and those of its directory", path.display());
    Failure::new(ErrorKind::Denied, message)
}

#[cfg(target_os = "linux")]
fn is_denied(path: &Path) -> bool {
    use rustix::fs::{Access, access};
    let needed = Access::READ_OK | Access::WRITE_OK;
    let (target, needed) = match path.parent() {
        Some(parent) if !path.exists() => (parent, needed | Access::EXEC_OK),
        _ => (path, needed),
    };
    matches!(access(target, needed), Err(rustix::io::Errno::ACCESS | rustix::io::Errno::PERM | rustix::io::Errno::ROFS))
}

#[cfg(not(target_os = "linux"))]
fn is_denied(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.permissions().readonly())
}

/// Asked by path, since closing a descriptor of the file would drop SQLite's locks on it.
fn identity(path: &Path) -> Option<Identity> {
    let (file, names) = inode(path)?;
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let log = inode(Path::new(&log)).map(|(log, _)| log);
    Some(Identity { file, log, names })
}

/// The file's inode and how many names it has, and not its times: who asks when a file was
/// changed makes the kernel note its next change more exactly, and so the next sync costlier
/// (since Linux 6.13; half as long again for an acquire and its release).
#[cfg(target_os = "linux")]
fn inode(path: &Path) -> Option<(Inode, u64)> {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    let found = statx(CWD, path, AtFlags::empty(), StatxFlags::INO | StatxFlags::NLINK).ok()?;
    let device = u64::from(found.stx_dev_major) << 32 | u64::from(found.stx_dev_minor);
    Some(((device, found.stx_ino), found.stx_nlink.into()))
}

#[cfg(all(unix, not(target_os = "linux")))]
fn inode(path: &Path) -> Option<(Inode, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    let found = path.metadata().ok()?;
    Some(((found.dev(), found.ino()), found.nlink()))
}

#[cfg(not(unix))]
fn inode(_path: &Path) -> Option<(Inode, u64)> {
    None
}
