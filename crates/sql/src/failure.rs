//! What is known of a statement that failed at a server.

use fencelock_core::{Error, ErrorKind};
use std::borrow::Cow;
use std::time::Duration;

/// A failed statement.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: Error,
    /// It surely changed nothing and will not later.
    pub(crate) not_done: bool,
    /// The connection must not be used again.
    pub(crate) reopen: bool,
    pub(crate) cause: Cause,
}

/// What to do about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Tell it.
    #[default]
    Other,
    /// Others were in the way, and it was undone: it may be sent again.
    Conflict,
    /// Another transaction had the row for too long.
    Locked,
    /// There is such a row already.
    #[cfg(feature = "mysql")]
    Duplicate,
    /// The connection broke; whether the statement ran is not known.
    Broken,
    /// There is no such table.
    NoTable,
    /// Nobody can be told of anything.
    #[cfg(feature = "postgres")]
    Full,
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

impl Failure {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self { error: Error::new(kind, message), not_done: false, reopen: false, cause: Cause::Other }
    }

    /// There was no connection to send it on.
    pub(crate) fn before(error: Error) -> Self {
        Self { error, not_done: true, reopen: true, cause: Cause::Other }
    }

    /// The statement may still run.
    pub(crate) fn no_answer(limit: Duration) -> Self {
        Self::new(ErrorKind::Unavailable, format!("no answer in {limit:?}")).reopen()
    }

    pub(crate) fn not_done(mut self) -> Self {
        self.not_done = true;
        self
    }

    pub(crate) fn reopen(mut self) -> Self {
        self.reopen = true;
        self
    }

    pub(crate) fn because(mut self, cause: Cause) -> Self {
        self.cause = cause;
        self
    }

    pub(crate) fn caused_by(mut self, cause: sqlx::Error) -> Self {
        self.error = self.error.with_source(cause);
        self
    }

    /// Whom the server turned away is told in its own words why, which hold no secret.
    pub(crate) fn in_words_of(mut self, cause: &sqlx::Error) -> Self {
        if let (ErrorKind::Denied, Some(words)) = (self.error.kind(), cause.as_database_error()) {
            let message = format!("{}: {}", self.error.message(), words.message());
            self.error = Error::new(ErrorKind::Denied, message);
        }
        self
    }

    pub(crate) fn at(mut self, engine: &'static str, operation: &'static str) -> Self {
        self.error = self.error.with_engine(engine).with_operation(operation);
        self
    }

    /// What the client library failed with by itself.
    pub(crate) fn of_client(cause: &sqlx::Error) -> Self {
        match cause {
            // What rustls objects to comes as bad data, and says what is wrong with whose certificate.
            sqlx::Error::Io(e) if e.kind() == std::io::ErrorKind::InvalidData && is_turned_away(e) => {
                Self::new(ErrorKind::Denied, format!("the server does not let us in by TLS: {e}")).not_done().reopen()
            }
            sqlx::Error::Io(e) if e.kind() == std::io::ErrorKind::InvalidData => {
                Self::new(ErrorKind::Unavailable, format!("no TLS with this server: {e}")).not_done().reopen()
            }
            sqlx::Error::Io(_) | sqlx::Error::WorkerCrashed => {
                Self::new(ErrorKind::Unavailable, "the connection is gone").reopen().because(Cause::Broken)
            }
            sqlx::Error::Tls(e) if e.to_string().contains("does not support") => {
                Self::new(ErrorKind::Unavailable, format!("no TLS with this server: {e}")).not_done().reopen()
            }
            // What the server objects to comes as bad data; this is before anything is sent.
            sqlx::Error::Tls(e) => {
                Self::new(ErrorKind::InvalidConfig, format!("a certificate or key cannot be used: {e}"))
                    .not_done()
                    .reopen()
            }
            sqlx::Error::Configuration(e) => {
                Self::new(ErrorKind::InvalidConfig, format!("the client library refused the settings: {e}")).reopen()
            }
            sqlx::Error::Protocol(_) => {
                Self::new(ErrorKind::Unavailable, "the server said what was not understood").reopen()
            }
            sqlx::Error::Decode(_) | sqlx::Error::ColumnDecode { .. } | sqlx::Error::ColumnNotFound(_) => {
                Self::new(ErrorKind::Engine, "a value in the table is not of its type")
            }
            _ => Self::new(ErrorKind::Engine, "the client library failed").reopen(),
        }
    }
}

/// Whether the server ended the handshake over who we are, or did not say.
///
/// Alerts: <https://www.rfc-editor.org/rfc/rfc8446#section-6.2>, as rustls names them.
fn is_turned_away(e: &std::io::Error) -> bool {
    const ALERTS: [&str; 11] = [
        "HandshakeFailure",
        "NoCertificate",
        "BadCertificate",
        "UnsupportedCertificate",
        "CertificateRevoked",
        "CertificateExpired",
        "CertificateUnknown",
        "UnknownCA",
        "AccessDenied",
        "DecryptError",
        "CertificateRequired",
    ];
    let text = e.to_string();
    text.split_once("received fatal alert: ").is_some_and(|(_, alert)| ALERTS.contains(&alert.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn who_is_turned_away_is_denied_and_who_turns_away_is_not() {
        for (said, kind) in [
            ("received fatal alert: UnknownCA", ErrorKind::Denied),
            ("received fatal alert: CertificateRequired", ErrorKind::Denied),
            ("received fatal alert: InternalError", ErrorKind::Unavailable),
            ("invalid peer certificate: UnknownIssuer", ErrorKind::Unavailable),
        ] {
            let failure = Failure::of_client(&sqlx::Error::Io(io::Error::new(io::ErrorKind::InvalidData, said)));
            assert_eq!(failure.error.kind(), kind, "{said}");
            assert!(failure.reopen && failure.not_done, "{said}");
        }
        let plain = sqlx::Error::Tls("server does not support TLS".into());
        assert_eq!(Failure::of_client(&plain).error.kind(), ErrorKind::Unavailable);
        let key = sqlx::Error::Tls("keys may not be consistent: KeyMismatch".into());
        assert_eq!(Failure::of_client(&key).error.kind(), ErrorKind::InvalidConfig);
    }
}
