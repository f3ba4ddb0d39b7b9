//! What is written at a place in a queue: who asks and since when, for `inspect` and for people with
//! `etcdctl`, and for how long a forced release keeps the lock closed.

use crate::keys::{decode, encode};
use etcd_client::KeyValue;
use fencelock_core::Claim;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What a forced release writes in the place of a hold that asked for a lock delay.
pub(crate) const CLOSED: &str = "closed";

/// Whether the place is a hold's no more: each is written once, and again by a forced release alone.
pub(crate) fn is_closed(kv: &KeyValue) -> bool {
    kv.version() > 1
}

/// What a place says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) holder: Arc<str>,
    pub(crate) note: Option<Arc<str>>,
    pub(crate) delay: Duration,
    /// When the place was asked for, by the clock of the host that asked: etcd keeps no times.
    at: Option<u64>,
}

impl Written {
    /// How long ago the place was asked for, as far as the two hosts' clocks agree. Shown, and nothing is decided by it.
    pub(crate) fn asked_ago(&self) -> Option<Duration> {
        self.at.map(|at| Duration::from_millis(unix_millis().saturating_sub(at)))
    }
}

fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// `holder=…&at=` in milliseconds since 1970 and, where there is one, `&delay=` in milliseconds and `&note=…`;
/// percent-encoded.
pub(crate) fn written(claim: &Claim) -> String {
    let mut text = format!("holder={}&at={}", encode(claim.holder()), unix_millis());
    if !claim.lock_delay().is_zero() {
        text.push_str(&format!("&delay={}", claim.lock_delay().as_millis()));
    }
    if let Some(note) = claim.note() {
        text.push_str(&format!("&note={}", encode(note)));
    }
    text
}

/// What [`written`] made; anything else is shown as it is.
pub(crate) fn read(value: &[u8]) -> Written {
    let text = String::from_utf8_lossy(value);
    parse(&text).unwrap_or_else(|| Written {
        holder: text.as_ref().into(),
        note: None,
        delay: Duration::ZERO,
        at: None,
    })
}

fn parse(text: &str) -> Option<Written> {
    let mut parts = text.split('&');
    let holder = decode(parts.next()?.strip_prefix("holder=")?)?.into();
    let mut written = Written { holder, note: None, delay: Duration::ZERO, at: None };
    for part in parts {
        match part.split_once('=')? {
            ("at", millis) => written.at = Some(millis.parse().ok()?),
            ("delay", millis) => written.delay = Duration::from_millis(millis.parse().ok()?),
            ("note", note) => written.note = Some(decode(note)?.into()),
            _ => return None,
        }
    }
    Some(written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock_core::{LockName, Terms};

    #[test]
    fn what_is_written_is_read() {
        let terms = Terms::new(LockName::new("a").unwrap(), Duration::from_secs(1)).with_holder("h&note=1 é");
        let plain = terms.clone().mint().unwrap();
        let (before, found) = (unix_millis(), read(written(&plain).as_bytes()));
        assert!(found.at.is_some_and(|at| (before..=unix_millis()).contains(&at)) && found.asked_ago().is_some());
        let expected = Written { holder: "h&note=1 é".into(), note: None, delay: Duration::ZERO, at: found.at };
        assert_eq!(found, expected);
        let full = terms.with_note("x\ny").with_lock_delay(Duration::from_millis(1500)).mint().unwrap();
        let delay = Duration::from_millis(1500);
        let found = read(written(&full).as_bytes());
        let at = found.at;
        assert_eq!(found, Written { note: Some("x\ny".into()), delay, at, ..expected });
        let early = Written { at: Some(u64::MAX), ..found };
        assert_eq!(early.asked_ago(), Some(Duration::ZERO), "a host whose clock is ahead");
        assert_eq!(read(b"holder=a").asked_ago(), None);
        assert_eq!(&*read(b"somebody's").holder, "somebody's");
        assert_eq!(&*read(b"holder=a&delay=x").holder, "holder=a&delay=x");
    }
}
