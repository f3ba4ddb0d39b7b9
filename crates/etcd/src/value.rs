//! What is written at a place in a queue: who asks, for `inspect` and for people with `etcdctl`.

use crate::keys::{decode, encode};
use fencelock_core::Claim;
use std::sync::Arc;

/// `holder=…` and, where there is one, `&note=…`, percent-encoded.
pub(crate) fn written(claim: &Claim) -> String {
    let holder = encode(claim.holder());
    match claim.note() {
        Some(note) => format!("holder={holder}&note={}", encode(note)),
        None => format!("holder={holder}"),
    }
}

/// Holder and note of what [`written`] made; anything else is shown as it is.
pub(crate) fn read(value: &[u8]) -> (Arc<str>, Option<Arc<str>>) {
    let text = String::from_utf8_lossy(value);
    let parts = || {
        let rest = text.strip_prefix("holder=")?;
        match rest.split_once("&note=") {
            Some((holder, note)) => Some((decode(holder)?.into(), Some(decode(note)?.into()))),
            None => Some((decode(rest)?.into(), None)),
        }
    };
    parts().unwrap_or_else(|| (text.as_ref().into(), None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock_core::{LockName, Terms};
    use std::time::Duration;

    #[test]
    fn what_is_written_is_read() {
        let terms = Terms::new(LockName::new("a").unwrap(), Duration::from_secs(1)).with_holder("h&note=1 é");
        let plain = terms.clone().mint().unwrap();
        assert_eq!(read(written(&plain).as_bytes()), ("h&note=1 é".into(), None));
        let noted = terms.with_note("x\ny").mint().unwrap();
        assert_eq!(read(written(&noted).as_bytes()), ("h&note=1 é".into(), Some("x\ny".into())));
        assert_eq!(read(b"somebody's"), ("somebody's".into(), None));
    }
}
