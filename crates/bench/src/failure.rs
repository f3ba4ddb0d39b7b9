//! One error for everything that can go wrong in a measurement: it is only ever shown.

/// What went wrong, as a text.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What a measurement gives.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;
