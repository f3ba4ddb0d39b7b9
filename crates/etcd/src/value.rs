//! What is written at a place in a queue: who asks, for `inspect` and for people with `etcdctl`, and
//! for how long a forced release keeps the lock closed.

use crate::keys::{decode, encode};
use etcd_client::KeyValue;
use fencelock_core::Claim;
use std::sync::Arc;
use std::time::Duration;

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
}

/// `holder=…` and, where there is one, `&delay=` in milliseconds and `&note=…`; percent-encoded.
pub(crate) fn written(claim: &Claim) -> String {
    let mut text = format!("holder={}", encode(claim.holder()));
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
    parse(&text).unwrap_or_else(|| Written { holder: text.as_ref().into(), note: None, delay: Duration::ZERO })
}

fn parse(text: &str) -> Option<Written> {
    let mut parts = text.split('&');
    let holder = decode(parts.next()?.strip_prefix("holder=")?)?.into();
    let mut written = Written { holder, note: None, delay: Duration::ZERO };
    for part in parts {
        match part.split_once('=')? {
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
        let expected = Written { holder: "h&note=1 é".into(), note: None, delay: Duration::ZERO };
        assert_eq!(read(written(&plain).as_bytes()), expected);
        let full = terms.with_note("x\ny").with_lock_delay(Duration::from_millis(1500)).mint().unwrap();
        let delay = Duration::from_millis(1500);
        assert_eq!(read(written(&full).as_bytes()), Written { note: Some("x\ny".into()), delay, ..expected });
        assert_eq!(&*read(b"somebody's").holder, "somebody's");
        assert_eq!(&*read(b"holder=a&delay=x").holder, "holder=a&delay=x");
    }
}
