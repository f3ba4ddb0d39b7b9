//! What Redis's failures mean for a lock.
//!
//! The codes are those of `src/server.c` (`createSharedObjects`) of Redis 7.0.

use crate::config::Address;
use fencelock_core::{Error, ErrorKind};
use std::borrow::Cow;

/// A request that failed, and what is known of it.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: Error,
    /// It was answered, or surely never left: it cannot arrive any more.
    pub(crate) settled: bool,
    /// The connection must not be used again.
    pub(crate) reopen: bool,
    pub(crate) next: Next,
}

/// Where the same request might be answered better.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nowhere.
    GiveUp,
    /// The script is not known: send it in full.
    SendScript,
    /// The slot has moved there for good; an empty host is the one that was asked.
    Moved(u16, Address),
    /// This once, there.
    Ask(Address),
    /// Some of the keys have moved and some have not: there again, or each key by itself.
    TryAgain,
    /// With the one who is master now.
    Rediscover,
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

impl Failure {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        let error = Error::new(kind, message).with_engine("redis");
        Self { error, settled: false, reopen: false, next: Next::GiveUp }
    }

    /// It never left.
    pub(crate) fn not_reached(why: impl std::fmt::Display) -> Self {
        Self::new(ErrorKind::Unavailable, format!("not reached: {why}")).settled().next(Next::Rediscover)
    }

    /// It may still be worked off.
    pub(crate) fn no_answer() -> Self {
        Self::new(ErrorKind::Unavailable, "no answer within `request_timeout`")
    }

    /// An answer that no script of ours gives.
    pub(crate) fn odd_answer() -> Self {
        Self::new(ErrorKind::Engine, "an answer of a shape that was not asked for").settled()
    }

    /// One server was named, and there are more.
    pub(crate) fn in_a_cluster() -> Self {
        Self::new(ErrorKind::InvalidConfig, "the server is a node of a Cluster: write `redis+cluster://`").settled()
    }

    /// The same, and nothing is left to be tried.
    pub(crate) fn at_last(self) -> Self {
        self.next(Next::GiveUp)
    }

    /// The same, for one more who waited for that answer.
    pub(crate) fn again(&self) -> Self {
        let error = Error::new(self.error.kind(), self.error.message().to_owned()).with_engine("redis");
        Self { error, settled: self.settled, reopen: self.reopen, next: self.next.clone() }
    }

    /// Redis answered that it will not.
    pub(crate) fn is_refusal(&self) -> bool {
        let kind = self.error.kind();
        self.settled && matches!(kind, ErrorKind::Denied | ErrorKind::Engine | ErrorKind::Unsupported)
    }

    #[cfg(feature = "tls")]
    pub(crate) fn with_source(mut self, cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.error = self.error.with_source(cause);
        self
    }

    fn settled(mut self) -> Self {
        self.settled = true;
        self
    }

    fn reopen(mut self) -> Self {
        self.reopen = true;
        self
    }

    fn next(mut self, next: Next) -> Self {
        self.next = next;
        self
    }

    pub(crate) fn of(cause: redis::RedisError) -> Self {
        let code = cause.code().map(str::to_owned);
        let failure = match &code {
            Some(code) => Self::of_answer(code, cause.detail().unwrap_or_default()),
            None => match cause.kind() {
                redis::ErrorKind::AuthenticationFailed => {
                    Self::new(ErrorKind::Denied, "the user or the password is not right").settled().reopen()
                }
                redis::ErrorKind::RESP3NotSupported => {
                    Self::new(ErrorKind::Unsupported, "Redis 6.0 or later is needed, for RESP3").settled().reopen()
                }
                redis::ErrorKind::InvalidClientConfig => {
                    Self::new(ErrorKind::InvalidConfig, format!("the connection cannot be set up: {cause}")).settled()
                }
                redis::ErrorKind::Parse => Self::new(ErrorKind::Engine, "an answer that is not Redis's").reopen(),
                _ => Self::new(ErrorKind::Unavailable, format!("the connection broke: {cause}"))
                    .reopen()
                    .next(Next::Rediscover),
            },
        };
        Self { error: failure.error.with_source(cause), ..failure }
    }

    /// An error that the server answered with: the request was worked off, or refused as a whole.
    pub(crate) fn of_answer(code: &str, detail: &str) -> Self {
        use ErrorKind::{Denied, Engine, InvalidConfig, Unavailable, Unsupported};
        // Before 7.0 the error of a command in a script comes inside the script's own.
        let inner = ["READONLY", "OOM", "MISCONF", "NOREPLICAS", "NOPERM", "BUSY", "LOADING", "MASTERDOWN", "NOSCRIPT"]
            .into_iter()
            .find(|inner| code == "ERR" && detail.contains(&format!("-{inner} ")));
        let failure = match inner.unwrap_or(code) {
            "NOSCRIPT" => Self::new(Unavailable, "the script is not loaded").next(Next::SendScript),
            "READONLY" => Self::new(Unavailable, "a replica, which takes no locks").reopen().next(Next::Rediscover),
            "LOADING" => Self::new(Unavailable, "Redis is loading its data"),
            "MASTERDOWN" => Self::new(Unavailable, "a replica without its master").reopen().next(Next::Rediscover),
            "BUSY" => Self::new(Unavailable, "another script runs and does not end"),
            "CLUSTERDOWN" => Self::new(Unavailable, "the Cluster is down").next(Next::Rediscover),
            "TRYAGAIN" => Self::new(Unavailable, "the slot is being moved").next(Next::TryAgain),
            "MOVED" | "ASK" => match redirection(detail) {
                Some((slot, address)) if code == "MOVED" => {
                    Self::new(Unavailable, "the slot has moved").next(Next::Moved(slot, address))
                }
                Some((_, address)) => Self::new(Unavailable, "the slot is being moved").next(Next::Ask(address)),
                None => Self::new(Engine, "a redirection that leads nowhere"),
            },
            "CROSSSLOT" => Self::in_a_cluster(),
            "OOM" => Self::new(Unavailable, "Redis is at its `maxmemory`, and takes no new lock"),
            "MISCONF" => Self::new(Unavailable, "Redis cannot write to its disk, and takes no lock (MISCONF)"),
            "NOREPLICAS" => Self::new(Unavailable, "Redis has fewer replicas than `min-replicas-to-write`"),
            "NOAUTH" | "WRONGPASS" => Self::new(Denied, "the user or the password is not right").reopen(),
            "NOPERM" => Self::new(Denied, "the user's ACL does not allow it; the crate's page lists what is needed"),
            "DENIED" => Self::new(Denied, "protected mode: Redis wants a password, or another `bind`").reopen(),
            "NOPROTO" => Self::new(Unsupported, "Redis 6.0 or later is needed, for RESP3").reopen(),
            "WRONGTYPE" => Self::new(Engine, "a key of ours holds another program's value; change `prefix`"),
            "NOTENTERED" => Self::new(Engine, "the gate has been emptied since it was entered; enter again"),
            "FENCELOCK" => Self::new(Engine, "no token is left below 2^53: the fence counter was tampered with"),
            // What is forbidden inside a script is told in words, before 7.2.
            "ERR" if detail.contains("user executing the script") => Self::of_answer("NOPERM", ""),
            "ERR" if detail.contains("max number of clients") => {
                Self::new(Unavailable, "Redis has as many clients as it takes").reopen()
            }
            "ERR" if detail.contains("cluster support disabled") => {
                Self::new(InvalidConfig, "the server is no node of a Cluster: write `redis://`")
            }
            "ERR" if detail.contains("DB index") => Self::new(InvalidConfig, "there is no database of that number"),
            "ERR" if detail.contains("unknown command") => {
                Self::new(Unsupported, "Redis does not know a command that is needed: renamed, or a proxy?")
            }
            code => Self::new(Engine, format!("Redis answered {code}")),
        };
        failure.settled()
    }
}

/// `3999 127.0.0.1:6381`; the host may be empty, and may hold colons.
fn redirection(detail: &str) -> Option<(u16, Address)> {
    let mut words = detail.split_ascii_whitespace();
    let slot = words.next()?.parse().ok()?;
    let (host, port) = words.next()?.rsplit_once(':')?;
    Some((slot, (host.to_owned(), port.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_its_kind_and_what_to_do() {
        use ErrorKind::{Denied, Engine, Unavailable};
        for (code, detail, kind, reopen, again) in [
            ("NOSCRIPT", "", Unavailable, false, true),
            ("READONLY", "", Unavailable, true, true),
            ("LOADING", "", Unavailable, false, false),
            ("BUSY", "", Unavailable, false, false),
            ("CLUSTERDOWN", "", Unavailable, false, true),
            ("MOVED", "1 h:2", Unavailable, false, true),
            ("ASK", "1 :2", Unavailable, false, true),
            ("MOVED", "odd", Engine, false, false),
            ("OOM", "", Unavailable, false, false),
            ("MISCONF", "", Unavailable, false, false),
            ("NOAUTH", "", Denied, true, false),
            ("WRONGPASS", "", Denied, true, false),
            ("NOPERM", "", Denied, false, false),
            ("ERR", "Error running script: -READONLY You can't", Unavailable, true, true),
            ("ERR", "anything", Engine, false, false),
        ] {
            let f = Failure::of_answer(code, detail);
            assert_eq!((f.error.kind(), f.reopen, f.next != Next::GiveUp), (kind, reopen, again), "{code}");
            assert!(f.settled, "{code} is an answer");
        }
        assert_eq!(Failure::of_answer("MOVED", "7 ::1:2").next, Next::Moved(7, ("::1".into(), 2)));
        assert!(!Failure::no_answer().settled);
    }
}
