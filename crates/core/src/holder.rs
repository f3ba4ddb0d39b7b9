//! Who holds a lock and who waits for it, as the server tells it.

use crate::{ClaimId, FencingToken};
use std::sync::Arc;
use std::time::Duration;

/// Who holds a lock, as the server tells it.
///
/// What a store does not keep is not known, and said to be so: nothing here is guessed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HolderInfo {
    /// Who said it would hold.
    pub holder: Arc<str>,
    /// The holder's note.
    pub note: Option<Arc<str>>,
    /// The hold's token; the last of those that its grant reserved, where it may
    /// [pass on](crate::AcquireOptions::cohort).
    pub token: FencingToken,
    /// How long the server will still keep it unless it is renewed, where there is such a time.
    pub remaining: Option<Duration>,
    /// How long it has been held, where the server knows.
    pub held_for: Option<Duration>,
    /// How long ago the holder asked for it, where the server knows that: it has held it for so
    /// long at most. In a queue that is when it took its place there.
    pub asked_ago: Option<Duration>,
    /// The hold's claim id, as traces show it, where the server knows. Where the lock was
    /// [passed on](crate::AcquireOptions::cohort) it is the first holder's.
    pub claim: Option<ClaimId>,
    /// How many wait for the lock, where the server knows: engines that have a queue there do.
    pub waiters: Option<u64>,
    /// Those who wait, in the order in which they will be served. Empty where nobody waits
    /// (`waiters` is 0 then), and where the server does not know who does. Of a long queue
    /// an engine may show the beginning: `waiters` counts all.
    pub waiting: Vec<Waiter>,
}

impl HolderInfo {
    /// A holder with a token; the rest unknown.
    #[must_use]
    pub fn new(holder: impl Into<Arc<str>>, token: FencingToken) -> Self {
        let (note, remaining, held_for, asked_ago, claim, waiters) = Default::default();
        let holder = holder.into();
        Self { holder, note, token, remaining, held_for, asked_ago, claim, waiters, waiting: Vec::new() }
    }

    /// The holder's note.
    #[must_use]
    pub fn with_note(mut self, note: Option<Arc<str>>) -> Self {
        self.note = note;
        self
    }

    /// How long the server will still keep it.
    #[must_use]
    pub fn with_remaining(mut self, remaining: Duration) -> Self {
        self.remaining = Some(remaining);
        self
    }

    /// How many wait for the lock, where it is not known who they are, or not all are shown.
    #[must_use]
    pub fn with_waiters(mut self, waiters: u64) -> Self {
        self.waiters = Some(waiters);
        self
    }

    /// Who waits for the lock, in the order in which they will be served; `waiters` is their number.
    #[must_use]
    pub fn with_waiting(mut self, waiting: Vec<Waiter>) -> Self {
        self.waiters = Some(u64::try_from(waiting.len()).unwrap_or(u64::MAX));
        self.waiting = waiting;
        self
    }

    /// The hold's claim id.
    #[must_use]
    pub fn with_claim(mut self, id: ClaimId) -> Self {
        self.claim = Some(id);
        self
    }

    /// How long it has been held.
    #[must_use]
    pub fn with_held_for(mut self, held_for: Duration) -> Self {
        self.held_for = Some(held_for);
        self
    }

    /// How long ago the holder asked for it.
    #[must_use]
    pub fn with_asked_ago(mut self, asked_ago: Duration) -> Self {
        self.asked_ago = Some(asked_ago);
        self
    }
}

/// Somebody who waits for a lock, as the server tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiter {
    /// Who said it would hold.
    pub holder: Arc<str>,
    /// The note that the lock will have when this one holds it.
    pub note: Option<Arc<str>>,
    /// How long it has been waiting, where that is known.
    pub waited_for: Option<Duration>,
    /// The id of its claim, as traces show it, where the server knows.
    pub claim: Option<ClaimId>,
}

impl Waiter {
    /// Somebody who waits; the rest unknown.
    #[must_use]
    pub fn new(holder: impl Into<Arc<str>>) -> Self {
        Self { holder: holder.into(), note: None, waited_for: None, claim: None }
    }

    /// The note.
    #[must_use]
    pub fn with_note(mut self, note: Option<Arc<str>>) -> Self {
        self.note = note;
        self
    }

    /// How long it has been waiting.
    #[must_use]
    pub fn with_waited_for(mut self, waited_for: Duration) -> Self {
        self.waited_for = Some(waited_for);
        self
    }

    /// The id of its claim.
    #[must_use]
    pub fn with_claim(mut self, id: ClaimId) -> Self {
        self.claim = Some(id);
        self
    }
}
