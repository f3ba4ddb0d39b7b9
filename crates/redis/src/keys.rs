//! Where things lie: the layout, whose version is stored on the server.
//!
//! | key | type | what |
//! |---|---|---|
//! | `<prefix>:{<shard>}:lock:<name>` | string: id, token, at, delay, length of the holder, holder, note | a held lock; expires |
//! | `<prefix>:fence`, in a Cluster `<prefix>:{<shard>}:fence` | string | the last token given out there; never expires |
//! | `<prefix>:dead`, in a Cluster `<prefix>:{<shard>}:dead` | sorted set, by the millisecond until which | ids of claims that are dead; expires |
//! | `<prefix>:{<shard>}:wait:<name>` | hash: first, last, least; of each place its claim; of each claim what it asks for | a queue; expires |
//! | `<prefix>:{<shard>}:gate:<resource>` | string | the largest token that has entered; never expires |
//! | `<prefix>:{layout}` | string | the layout's version |
//!
//! The shard is xxh3-64 of the name modulo 1,024, in decimal. It is all that is
//! hashed to a Cluster slot, so there a lock and its counter lie together, and braces
//! in a name mean nothing, since a tag ends at the first `}`. Where there are no slots all locks
//! have one counter: of many that are granted in one call it is read once.

use crate::words::Words;
use fencelock_core::LockName;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// Change it with anything above that a client of another version would misread.
pub(crate) const LAYOUT: &str = "3";
const LOCK: &str = "lock:";
const FENCE: &str = "fence";
const WAIT: &str = "wait:";
const DEAD: &str = "dead";
const SHARDS: u64 = 1_024;
const SLOTS: u16 = 16_384;

#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: Arc<str>,
    /// Counter and dead ids, where all locks have the same.
    shared: Option<Arc<[String; 2]>>,
}

/// A name's shard, written out once: it is in every key.
#[derive(Clone, Copy, Debug)]
struct Shard {
    number: u16,
    digits: [u8; 4],
}

impl Shard {
    fn of(name: &LockName) -> Self {
        let number = u16::try_from(xxh3_64(name.as_str().as_bytes()) % SHARDS).unwrap_or_default();
        let (mut digits, mut rest) = ([b'0'; 4], number);
        for digit in digits.iter_mut().rev() {
            *digit = b"0123456789".get(usize::from(rest % 10)).copied().unwrap_or_default();
            rest /= 10;
        }
        Self { number, digits }
    }

    /// Without leading zeros.
    fn as_str(&self) -> &str {
        let zeros = self.digits.iter().take(3).take_while(|digit| **digit == b'0').count();
        self.digits.get(zeros..).and_then(|digits| std::str::from_utf8(digits).ok()).unwrap_or_default()
    }
}

/// The keys of one lock.
#[derive(Clone, Debug)]
pub(crate) struct NameKeys {
    prefix: Arc<str>,
    shard: Shard,
    name: LockName,
    shared: Option<Arc<[String; 2]>>,
}

impl Keys {
    /// Of a server by itself, or of a Cluster, in which what belongs together lies in one slot.
    pub(crate) fn new(prefix: impl Into<Arc<str>>, is_cluster: bool) -> Self {
        let prefix = prefix.into();
        let shared = || Arc::new([FENCE, DEAD].map(|what| format!("{prefix}:{what}")));
        Self { shared: (!is_cluster).then(shared), prefix }
    }

    pub(crate) fn of(&self, name: &LockName) -> NameKeys {
        let (prefix, shared) = (Arc::clone(&self.prefix), self.shared.clone());
        NameKeys { prefix, shard: Shard::of(name), name: name.clone(), shared }
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

    /// `<prefix>:{<shard>}:`, with which every key of the name's own begins, then two parts.
    fn parts<'k>(&'k self, what: &'k str, of: &'k str) -> [&'k str; 6] {
        [&self.prefix, ":{", self.shard.as_str(), "}:", what, of]
    }

    fn key(&self, what: &str, of: &str) -> String {
        self.parts(what, of).concat()
    }

    /// What a caller's own key in the same slot begins with.
    pub(crate) fn tag(&self) -> String {
        format!("{{{}}}", self.shard.number)
    }

    pub(crate) fn lock(&self) -> String {
        self.key(LOCK, self.name.as_str())
    }

    /// Counter, dead ids and lock, with which the keys of all that changes them begin. Locks of one [group](Self::group)
    /// have the first two in common.
    pub(crate) fn begin(&self, words: &mut Words) {
        match self.shared.as_deref() {
            Some(shared) => shared.iter().for_each(|key| words.key(&[key])),
            None => [FENCE, DEAD].iter().for_each(|what| words.key(&self.parts(what, ""))),
        }
        words.key(&self.parts(LOCK, self.name.as_str()));
    }

    /// What may be asked in one call with others.
    pub(crate) fn group(&self) -> u16 {
        if self.shared.is_some() { 0 } else { self.shard.number }
    }

    pub(crate) fn fence(&self) -> String {
        self.shared.as_deref().map_or_else(|| self.key(FENCE, ""), |[fence, _]| fence.clone())
    }

    /// The ids that are dead.
    pub(crate) fn dead(&self) -> String {
        self.shared.as_deref().map_or_else(|| self.key(DEAD, ""), |[_, dead]| dead.clone())
    }

    /// Who waits for the lock.
    pub(crate) fn queue(&self) -> String {
        self.key(WAIT, self.name.as_str())
    }

    pub(crate) fn queue_key(&self, words: &mut Words) {
        words.key(&self.parts(WAIT, self.name.as_str()));
    }

    pub(crate) fn gate(&self) -> String {
        self.key("gate:", self.name.as_str())
    }

    /// The channel on which a release of the lock is told: called as its key is, so that nothing need say so.
    pub(crate) fn channel(&self) -> String {
        self.lock()
    }

    /// The channel on which a client is told what it was handed in this shard: by the node that has it.
    pub(crate) fn mail(&self, client: &str) -> String {
        self.key("to:", client)
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
        in_cluster().of(&LockName::new(name).unwrap())
    }

    fn in_cluster() -> Keys {
        Keys::new("fencelock", true)
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
            for key in [keys.lock(), keys.fence(), keys.queue(), keys.dead(), keys.gate(), keys.channel()] {
                assert_eq!(slot(key.as_bytes()), keys.slot(), "{key}");
            }
            assert!(seen.insert(keys.lock()), "{name}");
            assert_eq!(in_cluster().name_of(&keys.lock()).unwrap().as_str(), name);
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
            [keys.fence(), keys.queue(), keys.dead(), keys.channel()],
            ["fencelock:{543}:fence", "fencelock:{543}:wait:a", "fencelock:{543}:dead", "fencelock:{543}:lock:a"]
        );
        assert_eq!([keys.gate(), in_cluster().layout()], ["fencelock:{543}:gate:a", "fencelock:{layout}"]);
        let alone = Keys::new("fencelock", false).of(&LockName::new("a").unwrap());
        assert_eq!([alone.fence(), alone.dead()], ["fencelock:fence", "fencelock:dead"]);
        assert_eq!([alone.lock(), alone.queue(), alone.gate()], [keys.lock(), keys.queue(), keys.gate()]);
        assert_eq!((alone.group(), keys.group()), (0, 543));
        assert_eq!(LAYOUT, "3");
    }

    #[test]
    fn patterns_take_nothing_for_a_wildcard() {
        assert_eq!(Keys::new("my*app", false).pattern("a?[b]"), "my\\*app:{*}:lock:a\\?\\[b\\]*");
    }
}
