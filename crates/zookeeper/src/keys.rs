//! Paths, and what stands in nodes.

use fencelock_core::{Claim, ClaimId, LockName};
use std::cmp::Ordering;

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

/// One node in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The node's name, without its parent.
    pub(crate) node: String,
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
        Some(Self { node: node.to_owned(), sequence: sequence.parse().ok()? })
    }

    pub(crate) fn is_of(&self, id: ClaimId) -> bool {
        self.node.starts_with(&prefix(id))
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

/// Holder and note, as they stand in a claim's node: two lines, escaped.
pub(crate) fn write_data(claim: &Claim) -> Vec<u8> {
    let mut data = format!("holder={}\n", escape(claim.holder()));
    if let Some(note) = claim.note() {
        data.push_str(&format!("note={}\n", escape(note)));
    }
    data.into_bytes()
}

/// Holder and note from a claim's node; whatever else may stand there gives an empty holder.
pub(crate) fn read_data(data: &[u8]) -> (String, Option<String>) {
    let text = String::from_utf8_lossy(data);
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(unescape);
    (value("holder=").unwrap_or_default(), value("note="))
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
    fn data_comes_back() {
        let terms = Terms::new(LockName::new("a").unwrap(), Duration::from_secs(1));
        let claim = terms.with_holder("host\\n\n=1").with_note("note=\r\nx\\").mint().unwrap();
        assert_eq!(read_data(&write_data(&claim)), ("host\\n\n=1".to_owned(), Some("note=\r\nx\\".to_owned())));
        assert_eq!(read_data(&[0xff, 0xfe]), (String::new(), None));
    }
}
