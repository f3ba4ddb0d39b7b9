//! Guides, each to be read by itself.
//!
//! - [`choosing`]: which engine, or no lock at all.
//! - [`failures`]: how locks fail, how it shows, and what answers it.
//! - [`fencing`]: tokens, and the data that checks them.
//! - [`production`]: what to settle before, alerts, upgrades, moving to another engine.
//! - [`operating`]: from a lock that nobody gives back to a safe release.
//! - [`engines`]: writing an engine.

#[doc = include_str!("../guides/choosing.md")]
pub mod choosing {}
#[doc = include_str!("../guides/engines.md")]
pub mod engines {}
#[doc = include_str!("../guides/failures.md")]
pub mod failures {}
#[doc = include_str!("../guides/fencing.md")]
pub mod fencing {}
#[doc = include_str!("../guides/operating.md")]
pub mod operating {}
#[doc = include_str!("../guides/production.md")]
pub mod production {}
