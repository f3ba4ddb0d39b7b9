//! Where things are in the store.
//!
//! | key | what |
//! |---|---|
//! | `<prefix>/meta` | the version of this layout, and digits that no other store has |
//! | `<prefix>/l/<name>/<claim id>` | a place in the queue of a lock; the oldest holds it |
//! | `<prefix>/v/<claim id>` | a claim id that is dead while a request of it may still arrive |

use fencelock_core::{ClaimId, LockName};

/// The version of the layout, as stored under `<prefix>/meta` before the digits that name the store.
pub(crate) const LAYOUT: &str = "fencelock-etcd 3";

/// The keys under one prefix.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: String,
}

impl Keys {
    /// The keys under `prefix`, which has no slash at its end.
    pub(crate) fn under(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    pub(crate) fn meta(&self) -> String {
        format!("{}/meta", self.prefix)
    }

    /// What all locks' keys begin with.
    pub(crate) fn locks(&self) -> String {
        format!("{}/l/", self.prefix)
    }

    /// What the keys of all locks begin with whose name begins with `beginning`.
    pub(crate) fn names_from(&self, beginning: &str) -> String {
        self.locks() + &encode(beginning)
    }

    /// What all keys of the lock begin with, and those of no other.
    pub(crate) fn queue(&self, name: &LockName) -> String {
        self.names_from(name.as_str()) + "/"
    }

    /// The claim's place in the lock's queue.
    pub(crate) fn place(&self, name: &LockName, id: ClaimId) -> String {
        format!("{}{id}", self.queue(name))
    }

    pub(crate) fn void(&self, id: ClaimId) -> String {
        format!("{}/v/{id}", self.prefix)
    }

    /// The lock that a place belongs to; none if it is no key of this layout.
    pub(crate) fn name_of(&self, place: &[u8]) -> Option<LockName> {
        let place = std::str::from_utf8(place).ok()?;
        let (name, _) = place.strip_prefix(&self.locks())?.rsplit_once('/')?;
        LockName::new(decode(name)?).ok()
    }
}

/// The claim that a place belongs to; none if it is no key of this layout.
pub(crate) fn claim_of(place: &[u8]) -> Option<ClaimId> {
    let (_, id) = std::str::from_utf8(place).ok()?.rsplit_once('/')?;
    let number = u128::from_str_radix(id, 16).ok().filter(|_| id.len() == 32)?;
    Some(ClaimId::from_bytes(number.to_be_bytes()))
}

/// Encodes each byte by itself, so that the code of a beginning is the beginning of the code.
pub(crate) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'~') {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// Takes back what [`encode`] did; none if it did not make this.
pub(crate) fn decode(encoded: &str) -> Option<String> {
    let mut bytes = encoded.bytes();
    let mut decoded = Vec::with_capacity(encoded.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let digits = [bytes.next()?, bytes.next()?];
        let digits = std::str::from_utf8(&digits).ok()?.to_owned();
        decoded.push(u8::from_str_radix(&digits, 16).ok()?);
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> LockName {
        LockName::new(text).unwrap()
    }

    #[test]
    fn names_are_apart_and_come_back() {
        let keys = Keys::under("fencelock");
        let names = ["a", "A", "a/b", "a%2Fb", "a%2fb", ".", "..", "void", "meta", "l", "é", "🔒", "a ", "{a}"];
        for one in names {
            let id = ClaimId::from_bytes([7; 16]);
            assert_eq!(keys.name_of(keys.place(&name(one), id).as_bytes()), Some(name(one)));
            assert_eq!(claim_of(keys.place(&name(one), id).as_bytes()), Some(id));
            for other in names {
                let inside = keys.place(&name(other), id).starts_with(&keys.queue(&name(one)));
                assert_eq!(inside, one == other, "{one} {other}");
            }
        }
        assert!(keys.queue(&name("a/b")).starts_with(&keys.names_from("a/")));
    }

    #[test]
    fn what_is_not_ours_has_no_name() {
        let keys = Keys::under("p");
        for other in ["p/l/%zz/1", "p/l/x", "q/l/a/1", "p/l/%FF/1", "p/l//1", "p/l/a%2/1"] {
            assert_eq!(keys.name_of(other.as_bytes()), None, "{other}");
        }
        assert_eq!((keys.name_of(&[0xff]), claim_of(&[0xff])), (None, None));
        assert_eq!((claim_of(b"p/l/a/7"), claim_of(b"p/meta")), (None, None));
    }
}
