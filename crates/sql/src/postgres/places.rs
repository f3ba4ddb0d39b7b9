//! The claims of this client that others have heard of, or will.

use super::ears::{Ear, Ears};
use super::notice::Handing;
use crate::table::{Handed, Place};
use async_trait::async_trait;
use fencelock_core::{ClaimId, FencingToken, Hint, Moment};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::Notify;

/// How many tellings of one claim are kept: whoever hands the lock on has heard of one of the last.
const ROUNDS: usize = 8;
/// The most claims that are kept which have left, and whose undo will say so.
const MOST_LEFT: usize = 10_000;

/// All of one client.
#[derive(Default)]
pub(super) struct Places {
    here: HashMap<ClaimId, Arc<Shared>>,
    /// Told, and not yet said to be gone.
    left: VecDeque<ClaimId>,
}

impl Places {
    pub(super) fn find(&self, id: ClaimId) -> Option<Arc<Shared>> {
        self.here.get(&id).cloned()
    }

    /// Whether others may have heard of the claim, and count on it.
    pub(super) fn is_told(&self, id: ClaimId) -> bool {
        self.left.contains(&id) || self.here.get(&id).is_some_and(|place| place.state().is_told())
    }

    /// Everyone was told that the claim is gone.
    pub(super) fn over(&mut self, id: ClaimId) {
        self.left.retain(|left| *left != id);
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
}

#[derive(Default)]
pub(super) struct State {
    last_round: i64,
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
        let shared = Arc::<Shared>::default();
        ears.places().here.insert(id, Arc::clone(&shared));
        Self { ears: Arc::downgrade(ears), id, ear: Mutex::new(Some(ear)), shared }
    }
}

impl Shared {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the next telling.
    pub(super) fn round(&self) -> i64 {
        let mut state = self.state();
        state.last_round += 1;
        state.heard = false;
        state.last_round
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
        state.is_told()
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        let Some(ears) = self.ears.upgrade() else { return };
        let mut places = ears.places();
        if places.here.get(&self.id).is_some_and(|here| Arc::ptr_eq(here, &self.shared)) {
            places.here.remove(&self.id);
        }
        if self.shared.state().is_told() {
            if places.left.len() >= MOST_LEFT {
                places.left.pop_front();
            }
            places.left.push_back(self.id);
        }
    }
}
