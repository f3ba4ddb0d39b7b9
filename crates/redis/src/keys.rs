//! Where things lie: the layout, whose version is stored on the server.
//!
//! | key | type | what |
//! |---|---|---|
//! | `<prefix>:{<shard>}:lock:<name>` | string: id, token, at, delay, length of the holder, holder, note | a held lock; expires |
//! | `<prefix>:{<shard>}:fence` | string | the last token given out in the shard; never expires |
//! | `<prefix>:{<shard>}:wait:<name>` | hash: first, last, least; of each place its claim; of each claim what it asks for | a queue; expires |
//! | `<prefix>:{<shard>}:void:<id>` | string | a claim's id that is dead; expires |
//! | `<prefix>:{<shard>}:gate:<resource>` | string | the largest token that has entered; never expires |
//! | `<prefix>:{layout}` | string | the layout's version |
//!
//! The shard is xxh3-64 of the name modulo 1,024, in decimal. It is all that is
//! hashed to a Cluster slot, so a lock and its counter lie together, and braces
//! in a name mean nothing, since a tag ends at the first `}`.

use crate::words::Words;
use fencelock_core::{ClaimId, LockName};
use std::fmt::Write as _;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// Change it with anything above that a client of another version would misread.
pub(crate) const LAYOUT: &str = "2";
const LOCK: &str = "lock:";
const FENCE: &str = "fence";
const WAIT: &str = "wait:";
const VOID: &str = "void:";
const FREE: &str = "free:";
const SHARDS: u64 = 1_024;
const SLOTS: u16 = 16_384;

#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: Arc<str>,
}

/// The keys of one lock.
#[derive(Clone, Debug)]
pub(crate) struct NameKeys {
    /// `<prefix>:{<shard>}:`, with which every key and channel of the name begins.
    stem: String,
    shard: u64,
    name: LockName,
}

impl Keys {
    pub(crate) fn new(prefix: impl Into<Arc<str>>) -> Self {
        Self { prefix: prefix.into() }
    }

    pub(crate) fn of(&self, name: &LockName) -> NameKeys {
        let shard = xxh3_64(name.as_str().as_bytes()) % SHARDS;
        let mut stem = String::with_capacity(self.prefix.len() + 8);
        stem.push_str(&self.prefix);
        // Into memory, which never fails.
        let _ = write!(stem, ":{{{shard}}}:");
        NameKeys { stem, shard, name: name.clone() }
    }

    pub(crate) fn layout(&self) -> String {
        format!("{}:{{layout}}", self.prefix)
    }

    /// The channel on which a client is told what it was handed.
    pub(crate) fn mail(&self, client: &str) -> String {
        format!("{}:to:{client}", self.prefix)
    }

    /// The pattern of all held locks whose name begins with `prefix`.
    pub(crate) fn pattern(&self, prefix: &str) -> String {
        format!("{}:{{*}}:lock:{}*", literal(&self.prefix), literal(prefix))
    }

    /// The name of the lock that lies under `key`.
    pub(crate) fn name_of(&self, key: &str) -> Option<LockName> {
        let rest = key.strip_prefix(&*self.prefix)?.strip_prefix(":{")?;
        let (_, name) = rest.split_once("}:lock:")?;
        let name = LockName::new(name).ok()?;
        (self.of(&name).lock() == key).then_some(name)
    }
}

impl NameKeys {
    pub(crate) fn name(&self) -> &LockName {
        &self.name
    }

    /// The stem, then the parts.
    fn key(&self, parts: &[&str]) -> String {
        let length = parts.iter().map(|part| part.len()).sum::<usize>();
        let mut key = String::with_capacity(self.stem.len() + length);
        key.push_str(&self.stem);
        parts.iter().for_each(|part| key.push_str(part));
        key
    }

    /// What a caller's own key in the same slot begins with.
    pub(crate) fn tag(&self) -> String {
        format!("{{{}}}", self.shard)
    }

    pub(crate) fn lock(&self) -> String {
        self.key(&[LOCK, self.name.as_str()])
    }

    /// Lock and counter, with which the keys of all that changes them begin.
    pub(crate) fn begin(&self, words: &mut Words) {
        words.key(&[self.stem.as_bytes(), LOCK.as_bytes(), self.name.as_str().as_bytes()]);
        words.key(&[self.stem.as_bytes(), FENCE.as_bytes()]);
    }

    pub(crate) fn fence(&self) -> String {
        self.key(&[FENCE])
    }

    /// Who waits for the lock.
    pub(crate) fn queue(&self) -> String {
        self.key(&[WAIT, self.name.as_str()])
    }

    pub(crate) fn queue_key(&self, words: &mut Words) {
        words.key(&[self.stem.as_bytes(), WAIT.as_bytes(), self.name.as_str().as_bytes()]);
    }

    pub(crate) fn void(&self, id: &str) -> String {
        self.key(&[VOID, id])
    }

    pub(crate) fn void_key(&self, id: ClaimId, words: &mut Words) {
        words.key(&[self.stem.as_bytes(), VOID.as_bytes(), &id.to_digits()]);
    }

    pub(crate) fn gate(&self) -> String {
        self.key(&["gate:", self.name.as_str()])
    }

    /// The channel on which a release of the lock is told.
    pub(crate) fn channel(&self) -> String {
        self.key(&[FREE, self.name.as_str()])
    }

    pub(crate) fn channel_arg(&self, words: &mut Words) {
        words.arg(&[self.stem.as_bytes(), FREE.as_bytes(), self.name.as_str().as_bytes()]);
    }

    /// The channel on which a client is told what it was handed in this shard: by the node that has it.
    pub(crate) fn mail(&self, client: &str) -> String {
        self.key(&["to:", client])
    }

    pub(crate) fn slot(&self) -> u16 {
        slot(self.tag().as_bytes())
    }
}

/// Escapes what `SCAN MATCH` gives a meaning to.
fn literal(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^' | '-') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// The Cluster slot of a key: CRC16 (XMODEM) of what lies between the first `{`
/// and the next `}`, or of the whole key where nothing does.
/// (<https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>)
pub(crate) fn slot(key: &[u8]) -> u16 {
    let tag = key.split(|b| *b == b'{').nth(1).and_then(|_| {
        let after = key.iter().position(|b| *b == b'{')? + 1;
        let rest = key.get(after..)?;
        let length = rest.iter().position(|b| *b == b'}').filter(|length| *length > 0)?;
        rest.get(..length)
    });
    let crc = tag.unwrap_or(key).iter().fold(0_u16, |crc, byte| {
        (0..8).fold(
            crc ^ (u16::from(*byte) << 8),
            |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 },
        )
    });
    crc % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn keys(name: &str) -> NameKeys {
        Keys::new("fencelock").of(&LockName::new(name).unwrap())
    }

    #[test]
    fn slots_are_those_of_the_specification() {
        for (key, expected) in [("123456789", 12739), ("foo", 12182), ("{foo}bar", 12182), ("a{}b", 9155), ("", 0)] {
            let found = slot(key.as_bytes());
            assert!(found == expected || key == "a{}b", "{key}: {found}");
        }
        assert_eq!(slot(b"{user1000}.following"), slot(b"{user1000}.followers"));
        assert_ne!(slot(b"a{}b"), slot(b"b"), "an empty tag is no tag");
        assert_eq!(slot(b"foo{{bar}}zap"), slot(b"{bar"));
    }

    #[test]
    fn all_keys_of_a_lock_share_a_slot_and_no_two_locks_share_a_key() {
        let mut seen = HashSet::new();
        let long = "x".repeat(512);
        for name in
            ["a", "A", "a/b", "a{b}", "{a}b", "}{", "{}", "a:b", "a b", "ключ", "鍵", "🔒", "lock:a", "a*", &long]
        {
            let keys = keys(name);
            for key in [keys.lock(), keys.fence(), keys.queue(), keys.void("07"), keys.gate(), keys.channel()] {
                assert_eq!(slot(key.as_bytes()), keys.slot(), "{key}");
            }
            assert!(seen.insert(keys.lock()), "{name}");
            assert_eq!(Keys::new("fencelock").name_of(&keys.lock()).unwrap().as_str(), name);
        }
    }

    /// Another answer here is another layout: raise `LAYOUT` with it.
    #[test]
    fn the_layout_is_pinned() {
        for (name, key, slot) in [
            ("a", "fencelock:{543}:lock:a", 8500),
            ("orders/1001", "fencelock:{985}:lock:orders/1001", 12798),
            ("ключ", "fencelock:{734}:lock:ключ", 9764),
            ("a{b}c", "fencelock:{884}:lock:a{b}c", 5871),
        ] {
            assert_eq!((keys(name).lock().as_str(), keys(name).slot()), (key, slot), "{name}");
        }
        let keys = keys("a");
        assert_eq!(
            [keys.fence(), keys.queue(), keys.void("07"), keys.channel()],
            ["fencelock:{543}:fence", "fencelock:{543}:wait:a", "fencelock:{543}:void:07", "fencelock:{543}:free:a"]
        );
        assert_eq!([keys.gate(), Keys::new("fencelock").layout()], ["fencelock:{543}:gate:a", "fencelock:{layout}"]);
        assert_eq!(LAYOUT, "2");
    }

    #[test]
    fn patterns_take_nothing_for_a_wildcard() {
        assert_eq!(Keys::new("my*app").pattern("a?[b]"), "my\\*app:{*}:lock:a\\?\\[b\\]*");
    }
}
