//! Claim ids that are dead.

use fencelock_core::ClaimId;
use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Ids that were abandoned, or released while a request of theirs was unanswered.
///
/// The server needs no such list: what a session sent on an old connection is
/// refused there once it has come back on a new one, and what comes after a
/// `sync` comes after all that was sent before. This one is for callers that
/// ask again under an id that they gave up.
#[derive(Debug)]
pub(crate) struct Voids {
    keep: Duration,
    ids: Mutex<Ids>,
}

#[derive(Debug, Default)]
struct Ids {
    known: HashSet<ClaimId>,
    by_age: VecDeque<(Instant, ClaimId)>,
}

impl Voids {
    /// Ids are kept for `keep`, at least a minute.
    pub(crate) fn new(keep: Duration) -> Self {
        Self { keep: keep.max(Duration::from_secs(60)), ids: Mutex::default() }
    }

    pub(crate) fn insert(&self, id: ClaimId) {
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        while let Some((since, old)) = ids.by_age.front().copied()
            && now.duration_since(since) > self.keep
        {
            ids.by_age.pop_front();
            ids.known.remove(&old);
        }
        if ids.known.insert(id) {
            ids.by_age.push_back((now, id));
        }
    }

    pub(crate) fn contains(&self, id: ClaimId) -> bool {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).known.contains(&id)
    }
}
