//! Fencing tokens.

use std::fmt;

/// A number that grows with every grant of a lock, for the guarded resource to check.
///
/// A lock that expires cannot by itself keep a paused holder from acting late.
/// The resource can: it refuses a token smaller than the largest it has seen
/// (see [`Gate`](crate::Gate)). The first statement of this that is widely read
/// is Martin Kleppmann's "How to do distributed locking" (2016).
///
/// Tokens of one lock name are compared with each other and with no others, and
/// fit a signed 64-bit column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

impl FencingToken {
    /// The largest token there is: `i64::MAX`, so that every store can hold it.
    pub const MAX: Self = Self(i64::MAX as u64);

    /// The token of this value; a value above [`FencingToken::MAX`] becomes `MAX`.
    #[must_use]
    pub const fn new(value: u64) -> Self {
        if value > Self::MAX.0 { Self::MAX } else { Self(value) }
    }

    /// The number itself.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The next larger one; none after [`FencingToken::MAX`].
    pub(crate) fn next(self) -> Option<Self> {
        (self < Self::MAX).then(|| Self(self.0.saturating_add(1)))
    }

    /// The number for a signed column; no token is too large for one.
    #[must_use]
    pub const fn as_i64(self) -> i64 {
        self.0.cast_signed()
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_fits_a_signed_column() {
        assert_eq!(FencingToken::new(u64::MAX).as_i64(), i64::MAX);
        assert_eq!(FencingToken::new(7).as_i64(), 7);
    }
}
