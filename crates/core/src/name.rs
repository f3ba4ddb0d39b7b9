//! Lock names: what is allowed, checked once, here.

use crate::{Error, ErrorKind, Result};
use std::fmt;
use std::sync::Arc;

/// The longest name, in bytes of UTF-8.
pub const MAX_NAME_BYTES: usize = 512;

/// A valid lock name: 1 to 512 bytes of UTF-8 without control characters,
/// compared byte by byte.
///
/// Nothing is folded, trimmed or normalised: `a`, `A`, `a/b`, `a{b}` and two
/// encodings of `é` are different locks on every engine.
///
/// ```
/// use fencelock_core::LockName;
/// assert!(LockName::new("orders/1001").is_ok());
/// assert!(LockName::new("").is_err());
/// assert!(LockName::new("two\nlines").is_err());
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName(Arc<str>);

impl LockName {
    /// Checks `name`.
    ///
    /// # Errors
    /// `InvalidName` says which rule it breaks.
    pub fn new(name: impl AsRef<str>) -> Result<Self> {
        let name = name.as_ref();
        if name.is_empty() {
            return Err(Error::new(ErrorKind::InvalidName, "a lock's name has at least 1 byte"));
        }
        if name.len() > MAX_NAME_BYTES {
            let message =
                format!("a lock's name has at most {MAX_NAME_BYTES} bytes of UTF-8, this one has {}", name.len());
            return Err(Error::new(ErrorKind::InvalidName, message));
        }
        if let Some((at, c)) = name.char_indices().find(|(_, c)| c.is_control()) {
            let message =
                format!("a lock's name has no control characters, this one has {} at byte {at}", c.escape_unicode());
            return Err(Error::new(ErrorKind::InvalidName, message));
        }
        Ok(Self(name.into()))
    }

    /// The name as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for LockName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl TryFrom<&str> for LockName {
    type Error = Error;

    fn try_from(name: &str) -> Result<Self> {
        Self::new(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_in_bytes() {
        assert!(LockName::new("x".repeat(512)).is_ok());
        assert!(LockName::new("ß".repeat(256)).is_ok());
        let long = LockName::new("ß".repeat(257)).unwrap_err();
        assert_eq!(long.kind(), ErrorKind::InvalidName);
        assert!(long.to_string().contains("514"), "{long}");
    }

    #[test]
    fn odd_scripts_are_fine_and_control_characters_are_not() {
        for name in ["ключ", "鍵", "🔒", "a b", "a{b}", "a:b", "مفتاح", "e\u{301}"] {
            assert!(LockName::new(name).is_ok(), "{name}");
        }
        for name in ["", "\0", "a\u{7f}", "a\u{85}", "tab\t"] {
            assert_eq!(LockName::new(name).unwrap_err().kind(), ErrorKind::InvalidName);
        }
    }
}
