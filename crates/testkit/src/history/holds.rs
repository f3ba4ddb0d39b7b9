//! Events put together to holds, lock by lock.

use super::{Event, ReleaseAnswer, What};
use std::collections::HashMap;
use std::sync::Arc;

/// One acquire and what came of it.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    pub(super) id: (u32, u32),
    /// When acquire was called.
    pub(super) called: u64,
    /// When it answered, and the token if it was granted.
    pub(super) answered: Option<u64>,
    pub(super) token: Option<u64>,
    /// The call of the last `is_held()` that said true.
    pub(super) believed: Option<u64>,
    /// When loss was known first: told, or `is_held()` having said false.
    pub(super) doubted: Option<u64>,
    /// The call of an `is_held()` that said true although loss was known.
    pub(super) revived: Option<u64>,
    /// The call of an `is_held()` that said true past its deadline.
    pub(super) overran: Option<u64>,
    pub(super) revoked: Option<u64>,
    pub(super) release: Option<u64>,
    pub(super) freed: Option<u64>,
    /// The last that was heard of it.
    pub(super) last: u64,
}

impl Hold {
    fn new(id: (u32, u32), called: u64) -> Self {
        Self {
            id,
            called,
            answered: None,
            token: None,
            believed: None,
            doubted: None,
            revived: None,
            overran: None,
            revoked: None,
            release: None,
            freed: None,
            last: called,
        }
    }

    /// When it was granted, and with which token.
    pub(super) fn granted(&self) -> Option<(u64, u64)> {
        Some((self.answered?, self.token?))
    }

    /// From when acquire returned to the last true belief, or to release if it was called before.
    pub(super) fn must_hold(&self) -> Option<(u64, u64)> {
        let (start, _) = self.granted()?;
        let end = self.believed?.min(self.release.unwrap_or(u64::MAX));
        Some((start, end.max(start)))
    }

    /// When its holder ceased to count on it, as far as is known.
    pub(super) fn over(&self) -> u64 {
        let ends = [self.release, self.doubted];
        ends.into_iter().flatten().min().unwrap_or(self.last)
    }
}

/// All acquires of one lock, by the time of their call.
#[derive(Debug)]
pub(super) struct LockHistory {
    pub(super) lock: Arc<str>,
    pub(super) holds: Vec<Hold>,
    /// When it was taken by force.
    pub(super) forced: Vec<u64>,
}

/// Sorts events by lock. Locks come in the order in which they were first seen.
pub(super) fn by_lock(events: &[Event]) -> Vec<LockHistory> {
    let mut locks: Vec<LockHistory> = Vec::new();
    let mut names: HashMap<&str, usize> = HashMap::new();
    let mut places: HashMap<(u32, u32), (usize, usize)> = HashMap::new();
    for event in events {
        let id = (event.worker, event.hold);
        if let What::Acquire { lock } | What::Forced { lock } = &event.what {
            let at = *names.entry(lock).or_insert_with(|| {
                locks.push(LockHistory { lock: Arc::clone(lock), holds: Vec::new(), forced: Vec::new() });
                locks.len() - 1
            });
            let Some(history) = locks.get_mut(at) else { continue };
            if matches!(event.what, What::Forced { .. }) {
                history.forced.push(event.at);
            } else {
                places.insert(id, (at, history.holds.len()));
                history.holds.push(Hold::new(id, event.at));
            }
            continue;
        }
        let Some((lock, hold)) = places.get(&id) else { continue };
        if let Some(hold) = locks.get_mut(*lock).and_then(|history| history.holds.get_mut(*hold)) {
            tell(hold, event);
        }
    }
    locks
}

fn tell(hold: &mut Hold, event: &Event) {
    hold.last = hold.last.max(event.at);
    match &event.what {
        What::Granted { token } => (hold.answered, hold.token) = (Some(event.at), Some(*token)),
        What::NotGranted { .. } => hold.answered = Some(event.at),
        What::Believed { asked, deadline } => {
            hold.believed = hold.believed.max(Some(*asked));
            if asked > deadline {
                hold.overran = hold.overran.or(Some(*asked));
            }
            if hold.doubted.is_some_and(|known| *asked > known) {
                hold.revived = hold.revived.or(Some(*asked));
            }
        }
        What::Doubted { .. } => hold.doubted = hold.doubted.or(Some(event.at)),
        What::Lost { reason } => {
            hold.doubted = hold.doubted.or(Some(event.at));
            if &**reason == "revoked" {
                hold.revoked = Some(event.at);
            }
        }
        What::Release => hold.release = hold.release.or(Some(event.at)),
        What::Released { answer: ReleaseAnswer::Freed } => hold.freed = Some(event.at),
        _ => {}
    }
}
