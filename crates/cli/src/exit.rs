//! Exit codes: those of `sysexits.h`, and of shells where a command is run.

use fencelock::{Error, ErrorKind};

/// Freed, free, held: what was asked for is done.
pub(crate) const OK: u8 = 0;
/// With `status --exit-code`: nobody holds the lock.
pub(crate) const FREE: u8 = 1;
/// With `audit`: something was found.
pub(crate) const FOUND: u8 = 1;
/// The command line is wrong.
pub(crate) const USAGE: u8 = 64;
/// The lock service did not answer, or its engine cannot do this.
pub(crate) const UNAVAILABLE: u8 = 69;
/// Something else went wrong in the engine or in fencelock.
pub(crate) const SOFTWARE: u8 = 70;
/// The system refused something: a process, a signal, a terminal.
pub(crate) const SYSTEM: u8 = 71;
/// Somebody else holds the lock.
pub(crate) const CONTENDED: u8 = 75;
/// The lock was lost while the command ran.
pub(crate) const LOST: u8 = 76;
/// The lock service does not let us in.
pub(crate) const DENIED: u8 = 77;
/// The configuration is wrong.
pub(crate) const CONFIG: u8 = 78;
/// The deployment gives less than the level that was required.
pub(crate) const REFUSED: u8 = 79;
/// The command was found and cannot be run.
#[cfg(unix)]
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command was not found.
#[cfg(unix)]
pub(crate) const NOT_FOUND: u8 = 127;

/// The code of whatever was ended by signal `number`.
#[cfg(unix)]
pub(crate) fn signalled(number: i32) -> u8 {
    u8::try_from(number.saturating_add(128)).unwrap_or(u8::MAX)
}

/// Why a command failed: its exit code, and what to tell the user.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    #[cfg(unix)]
    pub(crate) fn system(what: &str, error: impl std::fmt::Display) -> Self {
        Self::new(SYSTEM, format!("{what}: {error}"))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(code(error.kind()), error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    /// Output that cannot be written.
    fn from(error: std::io::Error) -> Self {
        Self::new(SYSTEM, error.to_string())
    }
}

fn code(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Timeout => CONTENDED,
        ErrorKind::Lost => LOST,
        ErrorKind::Unavailable | ErrorKind::Unsupported => UNAVAILABLE,
        ErrorKind::InvalidName => USAGE,
        ErrorKind::InvalidConfig => CONFIG,
        ErrorKind::Refused => REFUSED,
        ErrorKind::Denied => DENIED,
        _ => SOFTWARE,
    }
}

/// The exit code of a command that ran to its end.
pub(crate) type Outcome = Result<u8, Failure>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_code() {
        let codes = [
            (ErrorKind::Timeout, 75),
            (ErrorKind::Lost, 76),
            (ErrorKind::Unavailable, 69),
            (ErrorKind::Unsupported, 69),
            (ErrorKind::InvalidName, 64),
            (ErrorKind::InvalidConfig, 78),
            (ErrorKind::Refused, 79),
            (ErrorKind::Denied, 77),
            (ErrorKind::Engine, 70),
        ];
        for (kind, expected) in codes {
            assert_eq!(Failure::from(Error::new(kind, "")).code, expected, "{kind}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn signals_are_128_and_their_number() {
        assert_eq!((signalled(2), signalled(11), signalled(15), signalled(i32::MAX)), (130, 139, 143, 255));
    }
}
