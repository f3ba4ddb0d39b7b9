//! What a request came to when it came to no answer.

use fencelock_core::{Error, ErrorKind};
use std::fmt;
use std::time::Duration;

/// Why a request failed, sorted by what is known of its effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It never reached a member that would act on it.
    NotSent(String),
    /// No answer came; it may have happened or happen still.
    Unknown(String),
    /// It was refused, and had no effect.
    Refused(Refusal),
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The lease that it names does not exist.
    NoLease,
    /// The store is full.
    NoSpace,
    /// We may not.
    Denied(String),
    /// The token of our authentication has expired, or the permissions were changed since.
    OldToken,
    /// The endpoint is of another cluster.
    Stranger(String),
    Other(String),
}

impl Failure {
    pub(crate) fn timed_out(limit: Duration) -> Self {
        Self::Unknown(format!("no answer in {limit:?}"))
    }

    /// Sorts an error of the client library. Its text names endpoints and never a password.
    pub(crate) fn of(e: &etcd_client::Error) -> Self {
        match e {
            etcd_client::Error::GRpcStatus(status) => {
                let connecting = format!("{status:?}").contains("ConnectError");
                Self::of_status(&format!("{:?}", status.code()), status.message(), connecting)
            }
            etcd_client::Error::LeaseKeepAliveError(text) if text == "lease not found" => {
                Self::Refused(Refusal::NoLease)
            }
            etcd_client::Error::InvalidArgs(_)
            | etcd_client::Error::InvalidUri(_)
            | etcd_client::Error::InvalidMetadataValue(_) => Self::Refused(Refusal::Other(e.to_string())),
            other => Self::Unknown(other.to_string()),
        }
    }

    fn of_status(code: &str, message: &str, connecting: bool) -> Self {
        let text = message.strip_prefix("etcdserver: ").unwrap_or(message);
        // Said before anything was proposed to the cluster.
        let unsent = ["no leader", "rpc not supported for learner", "not supported for learner", "too many requests"];
        if connecting || message.contains("tcp connect error") || unsent.iter().any(|said| text.contains(said)) {
            return Self::NotSent(text.to_owned());
        }
        if text.contains("requested lease not found") {
            return Self::Refused(Refusal::NoLease);
        }
        if text.contains("database space exceeded") {
            return Self::Refused(Refusal::NoSpace);
        }
        let old = ["revision of auth store is old", "auth: revision in header is old", "invalid auth token"];
        if old.iter().any(|said| text.contains(said)) {
            return Self::Refused(Refusal::OldToken);
        }
        let denied = ["authentication failed", "user name is empty", "permission denied"];
        if matches!(code, "PermissionDenied" | "Unauthenticated") || denied.iter().any(|said| text.contains(said)) {
            return Self::Refused(Refusal::Denied(text.to_owned()));
        }
        if matches!(
            code,
            "InvalidArgument"
                | "FailedPrecondition"
                | "NotFound"
                | "OutOfRange"
                | "Unimplemented"
                | "ResourceExhausted"
        ) {
            return Self::Refused(Refusal::Other(text.to_owned()));
        }
        Self::Unknown(if text.is_empty() { code.to_owned() } else { text.to_owned() })
    }

    /// Whether an effect is excluded.
    pub(crate) fn had_no_effect(&self) -> bool {
        !matches!(self, Self::Unknown(_))
    }

    /// A lease of this id, which only we would make, was granted to an earlier copy of the request.
    pub(crate) fn is_repeated_grant(&self) -> bool {
        matches!(self, Self::Refused(Refusal::Other(text)) if text.contains("lease already exists"))
    }

    /// Whether another member, or the same a little later, may answer.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::NotSent(_) | Self::Unknown(_) => true,
            Self::Refused(refusal) => matches!(refusal, Refusal::OldToken | Refusal::Stranger(_)),
        }
    }

    /// Whether waiting longer is of no use.
    pub(crate) fn is_final(&self) -> bool {
        !self.is_passing() || matches!(self, Self::Refused(Refusal::Stranger(_)))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent(text) | Self::Unknown(text) => f.write_str(text),
            Self::Refused(refusal) => refusal.fmt(f),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLease => f.write_str("the session's lease is gone"),
            Self::NoSpace => {
                f.write_str("the store is full (NOSPACE): compact, defragment and disarm the alarm, or raise the quota")
            }
            Self::OldToken => f.write_str("the token of our authentication is not valid any more"),
            Self::Denied(text) | Self::Other(text) | Self::Stranger(text) => f.write_str(text),
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let kind = match &failure {
            Failure::NotSent(_) | Failure::Unknown(_) | Failure::Refused(Refusal::OldToken) => ErrorKind::Unavailable,
            Failure::Refused(Refusal::Stranger(_)) => ErrorKind::Refused,
            Failure::Refused(Refusal::Denied(_)) => ErrorKind::Denied,
            Failure::Refused(Refusal::NoLease) => ErrorKind::Lost,
            Failure::Refused(Refusal::NoSpace | Refusal::Other(_)) => ErrorKind::Engine,
        };
        Self::new(kind, failure.to_string()).with_engine("etcd")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_is_never_folded_into_no() {
        for (code, message) in [
            ("Unavailable", "etcdserver: request timed out"),
            ("Unavailable", "etcdserver: leader changed"),
            ("Unknown", "h2 protocol error: error reading a body from connection"),
            ("Cancelled", "Timeout expired"),
            ("DeadlineExceeded", ""),
            ("Internal", "odd"),
        ] {
            let failure = Failure::of_status(code, message, false);
            assert!(!failure.had_no_effect() && failure.is_passing(), "{code} {message}");
            assert_eq!(Error::from(failure).kind(), ErrorKind::Unavailable);
        }
    }

    #[test]
    fn a_refusal_is_known_not_to_have_happened() {
        let kind = |code, message| {
            let failure = Failure::of_status(code, message, false);
            assert!(failure.had_no_effect(), "{message}");
            Error::from(failure).kind()
        };
        assert_eq!(kind("NotFound", "etcdserver: requested lease not found"), ErrorKind::Lost);
        assert_eq!(kind("ResourceExhausted", "etcdserver: mvcc: database space exceeded"), ErrorKind::Engine);
        assert_eq!(kind("PermissionDenied", "etcdserver: permission denied"), ErrorKind::Denied);
        assert_eq!(kind("InvalidArgument", "etcdserver: authentication failed, invalid user ID"), ErrorKind::Denied);
        assert_eq!(kind("Unavailable", "etcdserver: no leader"), ErrorKind::Unavailable);
        assert_eq!(kind("Unavailable", "tcp connect error"), ErrorKind::Unavailable);
    }
}
