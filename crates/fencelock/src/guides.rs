//! Guides for those who run programs with locks.

#[doc = include_str!("../guides/operating.md")]
pub mod operating {}
