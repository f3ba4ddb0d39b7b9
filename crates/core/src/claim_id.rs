//! What names one acquisition.

use crate::{Error, ErrorKind, Result};
use std::fmt;

/// 128 random bits that name one acquisition, and nothing else, ever.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId(u128);

impl ClaimId {
    /// A fresh id from the system's randomness.
    ///
    /// # Errors
    /// `Engine` if the system has no randomness to give.
    pub fn random() -> Result<Self> {
        let mut bytes = [0; 16];
        match getrandom::fill(&mut bytes) {
            Ok(()) => Ok(Self(u128::from_be_bytes(bytes))),
            Err(e) => Err(Error::new(ErrorKind::Engine, "the system gave no random bytes").with_source(e)),
        }
    }

    /// The id with these bytes, as an engine reads it back from its store.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }

    /// The id as it is [displayed](fmt::Display): 32 hexadecimal digits.
    #[must_use]
    pub fn to_digits(self) -> [u8; 32] {
        const DIGITS: [u8; 16] = *b"0123456789abcdef";
        let digit = |four: u8| DIGITS.get(usize::from(four)).copied().unwrap_or_default();
        let mut digits = [0; 32];
        for (two, byte) in digits.chunks_exact_mut(2).zip(self.to_bytes()) {
            two.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
        }
        digits
    }

    /// The id's bytes, most significant first.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }
}

impl fmt::Display for ClaimId {
    /// 32 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.to_digits()).unwrap_or_default())
    }
}

impl fmt::Debug for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClaimId({self})")
    }
}
