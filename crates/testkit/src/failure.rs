//! What a case says when it fails.

use fencelock_core::{Error, ErrorKind};
use std::fmt;

/// Why a case failed, in words for the engine's author.
///
/// Any error turns into one with `?`; like every such type it is no error itself.
pub struct Failure {
    message: String,
    /// It comes of an answer that never came, which says nothing of the lock.
    is_unanswered: bool,
}

impl Failure {
    /// A failure with this message.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), is_unanswered: false }
    }

    /// Says first what was being done.
    #[must_use]
    pub fn while_doing(self, what: impl fmt::Display) -> Self {
        Self { message: format!("{what}: {}", self.message), ..self }
    }

    /// Whether it is an error of kind `Unavailable` that the case did not expect.
    #[must_use]
    pub const fn is_unanswered(&self) -> bool {
        self.is_unanswered
    }
}

impl<E: std::error::Error + 'static> From<E> for Failure {
    fn from(e: E) -> Self {
        let e: &(dyn std::error::Error + 'static) = &e;
        let is_unanswered = e.downcast_ref::<Error>().is_some_and(|e| e.kind() == ErrorKind::Unavailable);
        let mut message = e.to_string();
        let mut cause = e.source();
        while let Some(e) = cause {
            message = format!("{message}: {e}");
            cause = e.source();
        }
        Self { message, is_unanswered }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What a case comes to.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// Ends the case with a failure unless the condition holds.
macro_rules! ensure {
    ($holds:expr, $($message:tt)+) => {
        if !$holds {
            return Err($crate::failure::Failure::new(format!($($message)+)));
        }
    };
}
pub(crate) use ensure;

/// Says what was expected where an error or nothing came.
pub(crate) trait Expect<T> {
    fn expect_that(self, what: impl fmt::Display) -> Outcome<T>;
}

impl<T> Expect<T> for Option<T> {
    fn expect_that(self, what: impl fmt::Display) -> Outcome<T> {
        self.ok_or_else(|| Failure::new(what.to_string()))
    }
}

impl<T, E: Into<Failure>> Expect<T> for Result<T, E> {
    fn expect_that(self, what: impl fmt::Display) -> Outcome<T> {
        self.map_err(|e| e.into().while_doing(what))
    }
}
