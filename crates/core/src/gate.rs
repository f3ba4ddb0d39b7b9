//! Gates: what stands before the data and checks tokens.
//!
//! Two rules, both needed:
//!
//! 1. [`enter`](Gate::enter) *before the first read* raises the resource's
//!    highest token, and refuses a smaller one.
//! 2. *Every effect carries the token* and is refused in the same atomic step if
//!    a larger one has entered since.
//!
//! Checked at the write alone, two holders both read and then both write, and an
//! update is lost. Entered but not checked at the write, a stale holder writes
//! late. So the data is reached only through the pass that `enter` gives, and
//! the pass checks again.
//!
//! For a resource of one's own, in any store with a conditional update: line one
//! enters, `UPDATE r SET fence = $t WHERE id = $id AND fence <= $t`; line two is
//! the write, `… WHERE id = $id AND fence = $t`.

use crate::{FencingToken, Result};
use std::fmt;
use std::future::Future;

/// A place that admits tokens that never go back.
///
/// `Scope` is what the caller brings, for instance a transaction of its own;
/// `Pass` is the only way to the data.
pub trait Gate: fmt::Debug + Send + Sync {
    /// What the caller brings for the gate to work in.
    type Scope<'s>: Send
    where
        Self: 's;

    /// The way to the data, for as long as no larger token has entered.
    type Pass<'s>: Send
    where
        Self: 's;

    /// Enters `resource` with `token`: raises its highest token, or finds this one stale.
    ///
    /// The same token may enter again.
    ///
    /// # Errors
    /// `InvalidName` if the resource's name breaks the rules of lock names;
    /// otherwise what the store failed with. A token may then have entered.
    ///
    /// # Cancel safety
    /// Dropping the future may leave the token entered, which only refuses smaller ones.
    fn enter<'s>(
        &'s self,
        scope: Self::Scope<'s>,
        resource: &'s str,
        token: FencingToken,
    ) -> impl Future<Output = Result<Admission<Self::Pass<'s>>>> + Send + 's;
}

/// Whether a token was let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a stale token must not go on"]
pub enum Admission<P> {
    /// It was, with what lies behind.
    Admitted(P),
    /// A larger token has entered.
    Stale(Stale),
}

impl<P> Admission<P> {
    /// What lies behind, or the staleness as an error for `?`.
    ///
    /// # Errors
    /// The [`Stale`] that was met.
    pub fn admitted(self) -> std::result::Result<P, Stale> {
        match self {
            Self::Admitted(pass) => Ok(pass),
            Self::Stale(stale) => Err(stale),
        }
    }

    /// Whether the token was too old.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        matches!(self, Self::Stale(_))
    }
}

/// A token was refused, since a larger one has entered: its holder lost the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stale {
    /// The largest token that has entered.
    pub newest: FencingToken,
}

impl Stale {
    /// Refused because of `newest`.
    #[must_use]
    pub const fn new(newest: FencingToken) -> Self {
        Self { newest }
    }
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stale: token {} has entered since", self.newest)
    }
}

impl std::error::Error for Stale {}
