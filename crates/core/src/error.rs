//! One opaque error for everything that can fail.

use crate::LockName;
use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;

/// A `Result` whose error is fencelock's.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, as far as a caller can act on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The wait limit passed while the lock was not free: held by somebody else, or closed by a lock delay.
    Timeout,
    /// The lock was no longer ours.
    Lost,
    /// The service did not answer, or could not be reached; what was asked for may have happened.
    Unavailable,
    /// This engine or this hold cannot do what was asked.
    Unsupported,
    /// The lock's name is empty, too long or has a control character.
    InvalidName,
    /// A setting is wrong; nothing was sent.
    InvalidConfig,
    /// The deployment cannot give the level or capability that was required.
    Refused,
    /// The service does not let us: authentication or permission.
    Denied,
    /// Anything else the engine said.
    Engine,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Timeout => "gave up waiting",
            Self::Lost => "lost",
            Self::Unavailable => "unavailable",
            Self::Unsupported => "unsupported",
            Self::InvalidName => "invalid name",
            Self::InvalidConfig => "invalid configuration",
            Self::Refused => "refused",
            Self::Denied => "denied",
            Self::Engine => "engine error",
        })
    }
}

/// A failure: its [kind](Error::kind), and where it came from.
///
/// Contention is not an error: `try_acquire` answers `None`. The error is one
/// word wide, never holds a URL or a password, and prints on one line:
///
/// ```
/// use fencelock_core::{Error, ErrorKind};
/// let e = Error::new(ErrorKind::Unavailable, "no answer in 1s").with_engine("memory").with_operation("renew");
/// assert_eq!(e.to_string(), "memory: renew: unavailable: no answer in 1s");
/// assert!(e.is_retryable());
/// ```
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    message: Cow<'static, str>,
    engine: Option<Cow<'static, str>>,
    operation: Option<&'static str>,
    name: Option<LockName>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of this kind. The message says what happened and, where it can, what to change.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        let message = message.into();
        Self(Box::new(Inner { kind, message, engine: None, operation: None, name: None, source: None }))
    }

    /// What kind of failure this is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the same call may succeed when made again, unchanged.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Timeout | ErrorKind::Unavailable)
    }

    /// The message alone, without kind, engine, operation and name.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The engine it happened in, where one was involved.
    #[must_use]
    pub fn engine(&self) -> Option<&str> {
        self.0.engine.as_deref()
    }

    /// What was being done: `acquire`, `renew`, `release`, …
    #[must_use]
    pub fn operation(&self) -> Option<&'static str> {
        self.0.operation
    }

    /// The lock it is about, where there is one.
    #[must_use]
    pub fn lock_name(&self) -> Option<&LockName> {
        self.0.name.as_ref()
    }

    /// Says which engine it happened in, unless that was said before.
    #[must_use]
    pub fn with_engine(mut self, engine: impl Into<Cow<'static, str>>) -> Self {
        self.0.engine.get_or_insert_with(|| engine.into());
        self
    }

    /// Says what was being done, unless that was said before.
    #[must_use]
    pub fn with_operation(mut self, operation: &'static str) -> Self {
        self.0.operation.get_or_insert(operation);
        self
    }

    /// Says which lock it is about, unless that was said before.
    #[must_use]
    pub fn with_name(mut self, name: &LockName) -> Self {
        self.0.name.get_or_insert_with(|| name.clone());
        self
    }

    /// Keeps the error that caused this one. It must not show a secret.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(engine) = self.engine() {
            write!(f, "{engine}: ")?;
        }
        if let Some(operation) = self.operation() {
            write!(f, "{operation}: ")?;
        }
        if let Some(name) = self.lock_name() {
            write!(f, "{name}: ")?;
        }
        write!(f, "{}: {}", self.kind(), self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("message", &self.0.message)
            .field("engine", &self.0.engine)
            .field("operation", &self.0.operation)
            .field("name", &self.0.name)
            .field("source", &self.0.source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|e| e as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_place_named_is_kept() {
        let e = Error::new(ErrorKind::Engine, "odd").with_operation("renew").with_operation("acquire");
        assert_eq!(e.operation(), Some("renew"));
        assert_eq!(size_of::<Error>(), size_of::<usize>());
    }
}
