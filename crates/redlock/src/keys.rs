//! Where things lie on each node: the layout, whose version is in the node's record.

use fencelock_core::LockName;
use std::fmt::Write as _;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// Change it with anything below.
pub(crate) const LAYOUT: &str = "redlock-2";
/// What is in the place of a hold, and told for its id, where a lock stays closed after a forced release: no claim has it.
pub(crate) const CLOSED: &str = "-";
/// Many, so that unrelated names seldom propose against each other.
pub(crate) const SHARDS: u32 = 65_536;

#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: Arc<str>,
}

/// The keys of one lock.
#[derive(Clone, Debug)]
pub(crate) struct NameKeys {
    pub(crate) shard: u32,
    /// And the channel on which a release is told.
    pub(crate) lock: String,
    /// So many of its bytes all keys of the shard begin with.
    tag: usize,
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.into() }
    }

    pub(crate) fn of(&self, name: &LockName) -> NameKeys {
        let shard = shard(name);
        let mut lock = String::with_capacity(self.prefix.len() + 16 + name.as_str().len());
        // Into memory, which never fails.
        let _ = write!(lock, "{}:{{{shard}}}:", self.prefix);
        let tag = lock.len();
        lock.extend(["lock:", name.as_str()]);
        NameKeys { shard, lock, tag }
    }

    pub(crate) fn lock(&self, name: &LockName) -> String {
        self.of(name).lock
    }

    pub(crate) fn fence(&self, shard: u32) -> String {
        format!("{}:{{{shard}}}:fence", self.prefix)
    }

    /// The channel on which everybody listens who waits: where nobody does, a release is told to nobody.
    pub(crate) fn waiting(&self) -> String {
        format!("{}:waiting", self.prefix)
    }

    /// The node's own record: layout, set, state.
    pub(crate) fn record(&self) -> String {
        format!("{}:{{layout}}", self.prefix)
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
        (self.lock(&name) == key).then_some(name)
    }
}

impl NameKeys {
    fn tag(&self) -> &str {
        self.lock.get(..self.tag).unwrap_or_default()
    }

    /// The parts of the key of the shard's counter.
    pub(crate) fn fence(&self) -> [&str; 2] {
        [self.tag(), "fence"]
    }

    /// The parts of the key of a void id.
    pub(crate) fn void<'a>(&'a self, id: &'a str) -> [&'a str; 3] {
        [self.tag(), "void:", id]
    }
}

fn shard(name: &LockName) -> u32 {
    u32::try_from(xxh3_64(name.as_str().as_bytes()) % u64::from(SHARDS)).unwrap_or(0)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn shards_are_pinned() {
        let found = ["a", "orders/1001", "鍵"].map(|name| shard(&LockName::new(name).unwrap()));
        assert_eq!(found, [19_999, 5_081, 44_080]);
    }

    #[test]
    fn no_two_locks_share_a_key_and_names_are_read_back() {
        let keys = Keys::new("redlock");
        let mut seen = HashSet::new();
        let long = "x".repeat(512);
        for name in
            ["a", "A", "a/b", "a{b}", "{a}b", "}{", "{}", "a:b", "a b", "ключ", "鍵", "🔒", "lock:a", "a*", &long]
        {
            let of = keys.of(&LockName::new(name).unwrap());
            assert!(seen.insert(of.lock.clone()), "{name}");
            assert_eq!(keys.name_of(&of.lock).unwrap().as_str(), name);
        }
        assert_eq!(Keys::new("my*app").pattern("a?[b]"), "my\\*app:{*}:lock:a\\?\\[b\\]*");
    }
}
