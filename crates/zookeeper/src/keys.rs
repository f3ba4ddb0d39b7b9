//! Paths, and what stands in nodes.

use fencelock_core::{Claim, ClaimId, LockName};
use std::cmp::Ordering;
use std::time::Duration;

/// The version of all that is in this file. It is kept at the server and checked at connect.
pub(crate) const LAYOUT: &str = "1";

/// Where everything of one application is.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    root: String,
}

impl Keys {
    pub(crate) fn under(root: impl Into<String>) -> Self {
        Self { root: root.into() }
    }

    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    /// Holds the layout's version. No encoded name has a `%` before a letter beyond `F`.
    pub(crate) fn layout(&self) -> String {
        format!("{}/%layout", self.root)
    }

    pub(crate) fn sessions(&self) -> String {
        format!("{}/%sessions", self.root)
    }

    /// The node by which a session shows that it lives.
    pub(crate) fn session(&self, id: i64) -> String {
        format!("{}/%sessions/{id:016x}", self.root)
    }

    /// The parent of all claims on `name`.
    pub(crate) fn queue(&self, name: &LockName) -> String {
        format!("{}/{}", self.root, encode(name.as_str()))
    }

    /// The path of a claim's node, but for the number that the server puts at its end.
    pub(crate) fn place(&self, claim: &Claim) -> String {
        format!("{}/{}", self.queue(claim.name()), prefix(claim.id()))
    }
}

/// A name as one part of a path: letters, digits, `-` and `_` stand for
/// themselves, every other byte is `%` and two upper-case digits. So no two names
/// share an encoding, and none is `.`, `..`, `zookeeper` with a slash, or ours.
fn encode(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_' {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// The name that was encoded; `None` for nodes that are no queue.
pub(crate) fn decode(part: &str) -> Option<LockName> {
    let mut bytes = part.bytes();
    let mut name = Vec::with_capacity(part.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            name.push(byte);
            continue;
        }
        let mut digit = || bytes.next().filter(|d| !d.is_ascii_lowercase()).and_then(|d| char::from(d).to_digit(16));
        name.push(u8::try_from(digit()? * 16 + digit()?).ok()?);
    }
    let name = LockName::new(String::from_utf8(name).ok()?).ok()?;
    (encode(name.as_str()) == part).then_some(name)
}

/// What comes before the sequence number in the name of a claim's node.
pub(crate) fn prefix(id: ClaimId) -> String {
    format!("{id}-")
}

/// The id in the name of a node that keeps a queue closed: random ids are never zero.
const CLOSURE: ClaimId = ClaimId::from_bytes([0; 16]);

/// One node in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The node's name, without its parent.
    pub(crate) node: String,
    id: ClaimId,
    sequence: i64,
}

impl Entry {
    /// `None` for a node that is no claim's: it is not ours to judge, and left alone.
    pub(crate) fn parse(node: &str) -> Option<Self> {
        let (id, sequence) = node.split_at_checked(33)?;
        let hex = id.strip_suffix('-')?;
        if !hex.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'a'..=b'f')) {
            return None;
        }
        let id = ClaimId::from_bytes(u128::from_str_radix(hex, 16).ok()?.to_be_bytes());
        Some(Self { node: node.to_owned(), id, sequence: sequence.parse().ok()? })
    }

    /// The number at the end of the name, as the server gave it.
    pub(crate) fn sequence(&self) -> &str {
        self.node.get(33..).unwrap_or_default()
    }

    /// The claim whose node it is.
    pub(crate) fn claim(&self) -> ClaimId {
        self.id
    }

    pub(crate) fn is_of(&self, id: ClaimId) -> bool {
        self.id == id
    }

    /// The node that takes this one's place, and is nobody's, while a queue is closed.
    pub(crate) fn closure(&self) -> String {
        format!("{}{}", prefix(CLOSURE), self.sequence())
    }

    /// Whether it keeps the queue closed.
    pub(crate) fn is_closure(&self) -> bool {
        self.id == CLOSURE
    }

    /// Who came first. The server counts in 32 bits and goes on below zero after
    /// the largest number, so the distance decides and not the number.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        match (i32::try_from(self.sequence), i32::try_from(other.sequence)) {
            (Ok(a), Ok(b)) => a.wrapping_sub(b).cmp(&0),
            _ => self.sequence.cmp(&other.sequence),
        }
    }

    pub(crate) fn is_before(&self, other: &Self) -> bool {
        self.order(other).is_lt()
    }
}

/// What stands in a claim's node: lines of `key=value`, escaped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Data {
    /// Who said it would hold.
    pub(crate) holder: String,
    pub(crate) note: Option<String>,
    /// How long the lock stays closed after a forced release, in whole milliseconds.
    pub(crate) delay: Duration,
}

impl Data {
    pub(crate) fn of(claim: &Claim) -> Self {
        let note = claim.note().map(|note| note.to_string());
        Self { holder: claim.holder().to_string(), note, delay: claim.lock_delay() }
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let mut lines = format!("holder={}\n", escape(&self.holder));
        if let Some(note) = &self.note {
            lines.push_str(&format!("note={}\n", escape(note)));
        }
        if !self.delay.is_zero() {
            lines.push_str(&format!("delay={}\n", self.delay.as_millis()));
        }
        lines.into_bytes()
    }

    /// What is missing or foreign is left out.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(unescape);
        let millis = value("delay=").and_then(|millis| millis.parse().ok()).unwrap_or_default();
        Self {
            holder: value("holder=").unwrap_or_default(),
            note: value("note="),
            delay: Duration::from_millis(millis),
        }
    }
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            '\\' => escaped.push_str("\\\\"),
            c => escaped.push(c),
        }
    }
    escaped
}

fn unescape(text: &str) -> String {
    let mut chars = text.chars();
    let mut plain = String::with_capacity(text.len());
    while let Some(c) = chars.next() {
        match (c, if c == '\\' { chars.next() } else { None }) {
            ('\\', Some('n')) => plain.push('\n'),
            ('\\', Some('r')) => plain.push('\r'),
            ('\\', Some(other)) => plain.push(other),
            (c, _) => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock_core::Terms;
    use std::time::Duration;

    fn entry(sequence: i64) -> Entry {
        Entry::parse(&format!("{}-{sequence:010}", "0123456789abcdef".repeat(2))).unwrap()
    }

    #[test]
    fn names_come_back_and_do_not_collide() {
        let long = "ß".repeat(256);
        let names = ["a", "A", "a/b", "a%2Fb", "a%2fb", ".", "..", "%layout", "%sessions", "zookeeper", "🔒 ", &long];
        let mut seen = std::collections::BTreeSet::new();
        for name in names {
            let encoded = encode(name);
            assert!(!encoded.contains(['/', '.']), "{encoded}");
            assert_eq!(decode(&encoded).unwrap().as_str(), name);
            assert!(seen.insert(encoded));
        }
        for other in ["%layout", "%sessions", "a.b", "%2f", "%4", "%41", ""] {
            assert!(decode(other).is_none(), "{other}");
        }
    }

    #[test]
    fn sequences_wrap_around() {
        let (max, min) = (i64::from(i32::MAX), i64::from(i32::MIN));
        assert!(entry(1).is_before(&entry(2)) && !entry(2).is_before(&entry(1)));
        assert!(entry(max).is_before(&entry(min)), "the one after the largest is the smallest");
        assert!(entry(max - 5).is_before(&entry(min + 5)) && !entry(min + 5).is_before(&entry(max - 5)));
        assert!(entry(-1).is_before(&entry(0)));
        assert!(entry(5).is_before(&entry(max + 10)), "wider numbers are taken as they are");
        assert!(!entry(3).is_before(&entry(3)));
    }

    #[test]
    fn foreign_nodes_are_no_entries() {
        for node in
            ["", "x", "lock-0000000001", &"f".repeat(40), &format!("{}-x", "a".repeat(32)), "ßßßßßßßßßßßßßßßßßßßß"]
        {
            assert!(Entry::parse(node).is_none(), "{node}");
        }
    }

    #[test]
    fn a_closure_takes_the_place_and_is_nobodys() {
        let held = entry(-5);
        let closed = Entry::parse(&held.closure()).unwrap();
        assert!(closed.is_closure() && !held.is_closure());
        assert_eq!(closed.order(&held), Ordering::Equal);
        assert_eq!(held.claim().to_string(), "0123456789abcdef".repeat(2));
    }

    #[test]
    fn data_comes_back() {
        let terms = Terms::new(LockName::new("a").unwrap(), Duration::from_secs(1));
        let terms =
            terms.with_holder("host\\n\n=1").with_note("note=\r\nx\\").with_lock_delay(Duration::from_millis(1_500));
        let data = Data::of(&terms.mint().unwrap());
        assert_eq!((data.holder.as_str(), data.note.as_deref()), ("host\\n\n=1", Some("note=\r\nx\\")));
        assert_eq!(Data::read(&data.write()), data);
        assert_eq!(Data::read(&[0xff, 0xfe]), Data::default());
        assert_eq!(Data::read(b"delay=x").delay, Duration::ZERO);
    }
}
