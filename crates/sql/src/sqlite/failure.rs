//! What SQLite's failures mean.
//!
//! Result codes: <https://www.sqlite.org/rescode.html>.

use fencelock_core::{Error, ErrorKind};
use std::time::Duration;

/// A failed statement, and what is known of it.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: Error,
    /// It surely changed nothing and will not later.
    pub(crate) not_done: bool,
    /// The connection must not be used again.
    pub(crate) reopen: bool,
    /// Another writer was in the way.
    pub(crate) busy: bool,
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

impl Failure {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<std::borrow::Cow<'static, str>>) -> Self {
        Self { error: Error::new(kind, message).with_engine("sqlite"), not_done: false, reopen: false, busy: false }
    }

    /// The statement may still run: SQLite works it off on the connection's thread.
    pub(crate) fn no_answer(limit: Duration) -> Self {
        Self::new(ErrorKind::Unavailable, format!("no answer in {limit:?}"))
    }

    fn not_done(mut self) -> Self {
        self.not_done = true;
        self
    }

    fn reopen(mut self) -> Self {
        self.reopen = true;
        self
    }

    pub(crate) fn of(cause: sqlx::Error) -> Self {
        let failure = match code(&cause) {
            Some(code) => Self::of_code(code),
            None => match &cause {
                sqlx::Error::WorkerCrashed | sqlx::Error::Io(_) => {
                    Self::new(ErrorKind::Unavailable, "the connection is gone").reopen()
                }
                sqlx::Error::PoolTimedOut => {
                    Self::new(ErrorKind::Unavailable, "another transaction took too long").not_done()
                }
                sqlx::Error::Decode(_) | sqlx::Error::ColumnDecode { .. } => {
                    Self::new(ErrorKind::Engine, "a value in the table is not of its type")
                }
                _ => Self::new(ErrorKind::Engine, "the client library failed"),
            },
        };
        failure.caused_by(cause)
    }

    pub(crate) fn caused_by(mut self, cause: sqlx::Error) -> Self {
        self.error = self.error.with_source(cause);
        self
    }

    /// The primary code is the lowest byte.
    fn of_code(code: i32) -> Self {
        use ErrorKind::{Denied, Engine, InvalidConfig, Unavailable};
        match code & 0xff {
            1 => Self::new(Engine, "SQLite refused the statement; is the table gone?").not_done().reopen(),
            3 | 23 => Self::new(Denied, "SQLite does not let us").not_done(),
            // In WAL mode it is told before anything is written.
            5 | 6 => Self { busy: true, ..Self::new(Unavailable, "another writer holds the file").not_done() },
            7 => Self::new(Unavailable, "out of memory"),
            8 if code == READONLY_DBMOVED => Self::new(Unavailable, "the file was moved or replaced").reopen(),
            8 => Self::new(Denied, "the file cannot be written: check its permissions and those of its directory")
                .not_done()
                .reopen(),
            // Also when the commit's fsync fails, after which the commit may yet be found in the log.
            10 => Self::new(Unavailable, "an input or output error on the disk").reopen(),
            11 => Self::new(Engine, "the file is damaged: restore it, or move it away while no lock is held").reopen(),
            // The write-ahead log could not grow, so the commit is not in it.
            13 => Self::new(Unavailable, "the disk is full").not_done(),
            14 => Self::new(Unavailable, "the file cannot be opened").not_done().reopen(),
            19 => Self::new(Engine, "a value does not fit the table").not_done(),
            26 => Self::new(InvalidConfig, "the file is not a SQLite database: name another path").not_done().reopen(),
            _ => Self::new(Engine, format!("SQLite failed with code {code}")),
        }
    }

    /// Whether another writer was in the way.
    pub(crate) fn is_busy(cause: &sqlx::Error) -> bool {
        code(cause).is_some_and(|code| matches!(code & 0xff, 5 | 6))
    }

    /// Whether the file could not be opened at all.
    pub(crate) fn is_cannot_open(cause: &sqlx::Error) -> bool {
        code(cause).is_some_and(|code| code & 0xff == 14)
    }
}

const READONLY_DBMOVED: i32 = 1032;

fn code(cause: &sqlx::Error) -> Option<i32> {
    cause.as_database_error()?.code()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_its_kind_and_certainty() {
        use ErrorKind::{Denied, Engine, InvalidConfig, Unavailable};
        for (code, kind, not_done, reopen) in [
            (5, Unavailable, true, false),
            (261, Unavailable, true, false),
            (6, Unavailable, true, false),
            (8, Denied, true, true),
            (1032, Unavailable, false, true),
            (10, Unavailable, false, true),
            (1034, Unavailable, false, true),
            (11, Engine, false, true),
            (13, Unavailable, true, false),
            (26, InvalidConfig, true, true),
            (99, Engine, false, false),
        ] {
            let f = Failure::of_code(code);
            assert_eq!((f.error.kind(), f.not_done, f.reopen), (kind, not_done, reopen), "{code}");
        }
    }
}
