//! What examples share, and nothing of what they show: workers that obey, servers to hurt, pages with time lines.

pub mod servers;
pub mod timeline;
pub mod worker;

use std::error::Error;

/// What an example came to.
pub type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;
