//! What an answer that is none means for a lock.

use fencelock_core::{Error, ErrorKind};
use std::future::Future;
use std::time::Duration;
use zookeeper_client as zk;

/// Why a request did not come to a yes.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The node, or its parent, is not there. Nothing was done.
    NoNode,
    /// The node is there already. Nothing was done.
    Exists,
    /// Permission or authentication. Nothing was done.
    Denied(String),
    /// The servers are busy. Nothing was done, and asking again may help.
    Busy(String),
    /// The server said no in some other way. Nothing was done.
    Refused(String),
    /// No answer came: it may have been done, and may still be.
    Unknown(String),
}

impl Failure {
    /// Whether an answer came, so that the request's effect is known.
    pub(crate) fn is_answer(&self) -> bool {
        !matches!(self, Self::Unknown(_))
    }
}

impl From<zk::Error> for Failure {
    fn from(e: zk::Error) -> Self {
        match e {
            zk::Error::NoNode => Self::NoNode,
            zk::Error::NodeExists => Self::Exists,
            zk::Error::NoAuth | zk::Error::InvalidAcl => Self::Denied(e.to_string()),
            zk::Error::Throttled => Self::Busy(e.to_string()),
            zk::Error::BadVersion
            | zk::Error::NotEmpty
            | zk::Error::NoChildrenForEphemerals
            | zk::Error::QuotaExceeded
            | zk::Error::BadArguments(_)
            | zk::Error::MarshallingError
            | zk::Error::Unimplemented
            | zk::Error::NotReadOnly
            | zk::Error::NoWatcher
            | zk::Error::ReconfigDisabled => Self::Refused(e.to_string()),
            // Among them those of kind `Custom`, by which the client reports a silent connection.
            _ => Self::Unknown(e.to_string()),
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let (kind, message) = match failure {
            Failure::NoNode => (ErrorKind::Engine, "a node that should be there is not".to_owned()),
            Failure::Exists => (ErrorKind::Engine, "a node that should be new is there".to_owned()),
            Failure::Denied(why) => (ErrorKind::Denied, why),
            Failure::Refused(why) => (ErrorKind::Engine, why),
            Failure::Busy(why) | Failure::Unknown(why) => (ErrorKind::Unavailable, why),
        };
        Self::new(kind, message)
    }
}

/// Awaits a request, at most `limit`.
pub(crate) async fn answer<T>(
    limit: Duration,
    request: impl Future<Output = Result<T, zk::Error>>,
) -> Result<T, Failure> {
    match tokio::time::timeout(limit, request).await {
        Ok(answered) => answered.map_err(Failure::from),
        Err(_) => Err(Failure::Unknown(format!("no answer in {limit:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_definite_is_unknown() {
        for e in [
            zk::Error::ConnectionLoss,
            zk::Error::SessionExpired,
            zk::Error::SessionMoved,
            zk::Error::ClientClosed,
            zk::Error::Timeout,
            zk::Error::UnexpectedErrorCode(-1),
            zk::Error::UnexpectedError("odd".to_owned()),
        ] {
            let failure = Failure::from(e);
            assert!(!failure.is_answer(), "{failure:?}");
            assert_eq!(Error::from(failure).kind(), ErrorKind::Unavailable);
        }
        assert!(Failure::from(zk::Error::NoNode).is_answer());
        assert_eq!(Error::from(Failure::from(zk::Error::NoAuth)).kind(), ErrorKind::Denied);
    }
}
