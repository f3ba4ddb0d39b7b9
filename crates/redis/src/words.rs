//! Keys and arguments of a script, in one piece.

use crate::script::Call;
use redis::Cmd;
use std::hash::{DefaultHasher, Hasher as _};
use std::io::Write as _;

/// The bytes that say how long a word is, before each.
const HEAD: usize = 4;

/// Keys, then arguments, as they will be sent.
#[derive(Default)]
pub(crate) struct Words {
    /// One after the other, so that all take one piece of memory.
    bytes: Vec<u8>,
    keys: usize,
    /// The first key in short. Two keys may have the same.
    pub(crate) tag: u64,
}

impl Words {
    pub(crate) fn new<K: AsRef<[u8]>, A: AsRef<[u8]>>(keys: &[K], args: &[A]) -> Self {
        let bytes = keys.iter().map(|key| key.as_ref().len()).chain(args.iter().map(|arg| arg.as_ref().len()));
        let mut words = Self::with_room(keys.len() + args.len(), bytes.sum());
        keys.iter().for_each(|key| words.key(&[key.as_ref()]));
        args.iter().for_each(|arg| words.arg(&[arg.as_ref()]));
        words.tagged()
    }

    /// None yet, but room for so many words of so many bytes in all.
    pub(crate) fn with_room(words: usize, bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes + HEAD * words), keys: 0, tag: 0 }
    }

    /// With the tag of its first key.
    pub(crate) fn tagged(mut self) -> Self {
        let mut hasher = DefaultHasher::new();
        self.keys().take(1).for_each(|first| hasher.write(first));
        self.tag = hasher.finish();
        self
    }

    /// The next key, of these parts. All keys come before the first argument.
    pub(crate) fn key<P: AsRef<[u8]>>(&mut self, parts: &[P]) {
        self.keys += 1;
        self.arg(parts);
    }

    /// The next argument, of these parts.
    pub(crate) fn arg<P: AsRef<[u8]>>(&mut self, parts: &[P]) {
        self.word(|bytes| parts.iter().for_each(|part| bytes.extend_from_slice(part.as_ref())));
    }

    /// The next argument, as it is written out.
    pub(crate) fn written(&mut self, what: std::fmt::Arguments<'_>) {
        // Into memory, which never fails.
        self.word(|bytes| drop(bytes.write_fmt(what)));
    }

    fn word(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let head = self.bytes.len();
        self.bytes.extend([0; HEAD]);
        write(&mut self.bytes);
        let length = self.bytes.len().saturating_sub(head + HEAD);
        // Nothing as long as 4 GiB is ever sent.
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        if let Some(place) = self.bytes.get_mut(head..head + HEAD) {
            place.copy_from_slice(&length.to_le_bytes());
        }
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.bytes.as_slice();
        std::iter::from_fn(move || {
            let (head, after) = rest.split_first_chunk::<HEAD>()?;
            let (word, after) = after.split_at_checked(usize::try_from(u32::from_le_bytes(*head)).ok()?)?;
            rest = after;
            Some(word)
        })
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.iter().take(self.keys)
    }

    pub(crate) fn args(&self) -> impl Iterator<Item = &[u8]> {
        self.iter().skip(self.keys)
    }
}

impl Call for Words {
    fn key_count(&self) -> usize {
        self.keys
    }

    fn room(&self) -> (usize, usize) {
        (self.iter().count(), self.bytes.len())
    }

    fn write(&self, command: &mut Cmd) {
        self.iter().for_each(|word| {
            command.arg(word);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_kept_apart() {
        let mut words = Words::new(&["a", ""], &["bc", "", "d"]);
        words.written(format_args!("{}-{}", 1, 2));
        assert_eq!(words.keys().collect::<Vec<_>>(), [b"a".as_slice(), b""]);
        assert_eq!(words.args().collect::<Vec<_>>(), [b"bc".as_slice(), b"", b"d", b"1-2"]);
        let mut words = Words::with_room(2, 4);
        words.key(&[b"x", b"y"]);
        words.arg(&[""]);
        assert_eq!(words.keys().collect::<Vec<_>>(), [b"xy".as_slice()]);
        assert_eq!((words.args().collect::<Vec<_>>(), words.room().0), (vec![b"".as_slice()], 2));
    }
}
