//! The claims of this client that others have heard of, or will.

use super::ears::{Ear, Ears};
use super::notice::Handing;
use crate::table::{Handed, Place};
use async_trait::async_trait;
use fencelock_core::{ClaimId, FencingToken, Hint, Moment};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Notify;

/// How many tellings of one claim are kept: whoever hands the lock on has heard of one of the last.
const ROUNDS: usize = 8;
/// For how long what was told need not be told again, since those who were there know, and whoever came since learns
/// it soon after: each notice wakes every session that listens.
const AGAIN: Duration = Duration::from_millis(100);
/// The most claims that are kept which have left, and whose undo will say so.
const MOST_LEFT: usize = 10_000;

/// All of one client.
#[derive(Default)]
pub(super) struct Places {
    here: HashMap<ClaimId, Arc<Shared>>,
    /// Told, and not yet said to be gone; and the token under which it held the lock, if it did.
    left: VecDeque<(ClaimId, Option<FencingToken>)>,
    /// The last telling's number. A claim may have a place a second time, and hear of what it told in the first.
    rounds: Arc<AtomicI64>,
}

impl Places {
    pub(super) fn find(&self, id: ClaimId) -> Option<Arc<Shared>> {
        self.here.get(&id).cloned()
    }

    /// Whether others may have heard of the claim, and count on it.
    pub(super) fn is_told(&self, id: ClaimId) -> bool {
        self.left.iter().any(|(left, _)| *left == id) || self.here.get(&id).is_some_and(|place| place.state().is_told())
    }

    /// Whether the claim has left, and held the lock under this token.
    pub(super) fn had(&self, id: ClaimId, token: i64) -> bool {
        self.left.iter().any(|(left, held)| *left == id && held.is_some_and(|held| held.as_i64() == token))
    }

    /// Everyone was told that the claim is gone.
    pub(super) fn over(&mut self, id: ClaimId) {
        self.left.retain(|(left, _)| *left != id);
        if let Some(place) = self.here.get(&id) {
            let mut state = place.state();
            (state.told, state.unsure) = (false, false);
        }
    }
}

/// A place of one claim.
pub(super) struct Waits {
    ears: Weak<Ears>,
    id: ClaimId,
    ear: Mutex<Option<Ear>>,
    shared: Arc<Shared>,
}

#[derive(Default)]
pub(super) struct Shared {
    state: Mutex<State>,
    changed: Notify,
    /// The client's.
    rounds: Arc<AtomicI64>,
}

#[derive(Default)]
pub(super) struct State {
    /// Which session it was to be heard by.
    listener: Option<i64>,
    sent: VecDeque<(i64, Moment)>,
    /// Others have heard of the claim.
    told: bool,
    /// A telling is under way, or had no answer.
    unsure: bool,
    /// The last one was heard, and a release will be.
    heard: bool,
    handed: Option<Handed>,
    held: Option<FencingToken>,
    /// The token of the hold before this one, where that is known.
    pub(super) since: Option<i64>,
    /// How often the lock was handed on since it was last free for all.
    pub(super) passed: i64,
}

impl State {
    fn is_told(&self) -> bool {
        self.told || self.unsure
    }
}

impl Waits {
    pub(super) fn new(ears: &Arc<Ears>, id: ClaimId, ear: Ear) -> Self {
        let mut places = ears.places();
        let shared = Arc::new(Shared { rounds: Arc::clone(&places.rounds), ..Shared::default() });
        places.here.insert(id, Arc::clone(&shared));
        drop(places);
        Self { ears: Arc::downgrade(ears), id, ear: Mutex::new(Some(ear)), shared }
    }
}

impl Shared {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the next telling, if one is due: what was told just now of this session need not be told again.
    pub(super) fn round(&self, listener: i64, now: Moment) -> Option<i64> {
        let mut state = self.state();
        let last = state.sent.back().filter(|_| state.told && !state.unsure && state.listener == Some(listener));
        if last.is_some_and(|(_, at)| now.since(*at) < AGAIN) {
            return None;
        }
        (state.heard, state.listener) = (false, Some(listener));
        Some(self.rounds.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// That telling is about to be sent.
    pub(super) fn sends(&self, round: i64, at: Moment) {
        let mut state = self.state();
        state.unsure = true;
        state.sent.push_back((round, at));
        if state.sent.len() > ROUNDS {
            state.sent.pop_front();
        }
    }

    /// It was answered, and told or not.
    pub(super) fn answered(&self, told: bool) {
        let mut state = self.state();
        (state.unsure, state.heard) = (false, told);
        state.told |= told;
    }

    /// The lock was last held under `token`, as far as the statement saw that took it.
    pub(super) fn follows(&self, token: Option<i64>) {
        self.state().since = token;
    }

    /// The lock was handed on to the claim; false if it holds it under another token, or did.
    pub(super) fn receives(&self, handing: &Handing) -> bool {
        let token = FencingToken::new(u64::try_from(handing.token).unwrap_or(0));
        let mut state = self.state();
        if state.held.is_none() {
            let sent = state.sent.iter().find(|(round, _)| *round == handing.round);
            state.handed = Some(Handed { sent_at: sent.map(|(_, at)| *at), token });
            (state.passed, state.since) = (handing.passed, None);
            drop(state);
            self.changed.notify_waiters();
            return true;
        }
        state.passed = state.passed.max(handing.passed);
        state.held == Some(token)
    }
}

#[async_trait]
impl Place for Waits {
    fn is_told(&self) -> bool {
        self.shared.state().heard
    }

    fn ear(&self) -> Option<Box<dyn Hint>> {
        let ear = self.ear.lock().unwrap_or_else(PoisonError::into_inner).take();
        ear.map(|ear| Box::new(ear) as Box<dyn Hint>)
    }

    async fn handed(&self) {
        loop {
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.is_handed() {
                return;
            }
            changed.await;
        }
    }

    fn is_handed(&self) -> bool {
        self.shared.state().handed.is_some()
    }

    fn take(&self) -> Option<Handed> {
        self.shared.state().handed.take()
    }

    fn holds(&self, token: FencingToken) -> bool {
        let mut state = self.shared.state();
        (state.held, state.handed) = (Some(token), None);
        state.is_told() || state.since.is_some()
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        let Some(ears) = self.ears.upgrade() else { return };
        let mut places = ears.places();
        if places.here.get(&self.id).is_some_and(|here| Arc::ptr_eq(here, &self.shared)) {
            places.here.remove(&self.id);
        }
        let state = self.shared.state();
        if state.is_told() {
            if places.left.len() >= MOST_LEFT {
                places.left.pop_front();
            }
            places.left.push_back((self.id, state.held));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock_core::{LockName, Terms};

    #[tokio::test]
    async fn what_was_told_just_now_is_not_told_again() {
        let claim = Terms::new(LockName::new("a").unwrap(), Duration::from_secs(1)).mint().unwrap();
        let (shared, now) = (Shared::default(), claim.now());
        let tells = |told| {
            let round = shared.round(1, now)?;
            shared.sends(round, now);
            if let Some(told) = told {
                shared.answered(told);
            }
            Some(round)
        };
        assert_eq!(tells(None), Some(1));
        assert_eq!(tells(Some(false)), Some(2), "the first had no answer");
        assert_eq!(tells(Some(true)), Some(3), "the second was not told, since the lock was free");
        assert_eq!(tells(Some(true)), None);
        assert_eq!(shared.round(1, now.plus(AGAIN)), Some(4), "by now somebody may have come who does not know");
        shared.sends(4, now);
        shared.answered(true);
        assert_eq!((shared.round(1, now), shared.round(2, now)), (None, Some(5)), "another session is to hear of it");
        let again = Shared { rounds: Arc::clone(&shared.rounds), ..Shared::default() };
        assert_eq!(again.round(1, now), Some(6), "what the same claim told in an earlier place is not taken for this");
    }
}
