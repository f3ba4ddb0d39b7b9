//! Without the feature `metrics` nothing is measured, and nothing is left of the calls.

use crate::{Ended, ErrorKind};
use std::time::Duration;

/// Counts for as long as it lives, where anybody counts.
pub(crate) struct Counted;

pub(super) fn waiting(_: &str) -> Counted {
    Counted
}

pub(super) fn held(_: &str) -> Counted {
    Counted
}

pub(super) fn granted(_: &str, _: Duration) {}

pub(super) fn renewed(_: &str) {}

pub(super) fn jeopardy(_: &str) {}

pub(super) fn ended(_: &str, _: Duration, _: Ended) {}

pub(super) fn stale_release(_: &str) {}

pub(super) fn contended(_: &str) {}

pub(super) fn refused(_: &str, _: Option<ErrorKind>) {}

pub(super) fn tried_in_vain(_: &str) {}

pub(super) fn abandoned(_: &str, _: bool) {}
