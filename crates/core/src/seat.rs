//! What calls of one scope share: one attempt, then one hold, and a count of who is there.

mod attempt;

pub(crate) use attempt::seated;

use crate::client::Shared;
use crate::hold::Hold;
use crate::ledger::Errand;
use crate::pursuit::{Granted, Wish, take};
use crate::reentrant::Asked;
use crate::sync::lock;
use crate::{Claim, Error, LockGuard, LockName, ReentrantGuard, Result};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// The scopes of one client that somebody still has, by name.
pub(crate) type Scopes = Mutex<HashMap<Arc<str>, Weak<Scope>>>;

pub(crate) struct Scope {
    id: Arc<str>,
    shared: Arc<Shared>,
    entries: Mutex<HashMap<LockName, Arc<Entry>>>,
}

impl Scope {
    pub(crate) fn of(shared: &Arc<Shared>, id: &str) -> Arc<Self> {
        let mut scopes = lock(&shared.scopes);
        if let Some(scope) = scopes.get(id).and_then(Weak::upgrade) {
            return scope;
        }
        let id: Arc<str> = id.into();
        let scope = Arc::new(Self { id: Arc::clone(&id), shared: Arc::clone(shared), entries: Mutex::default() });
        scopes.insert(id, Arc::downgrade(&scope));
        scope
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn id_arc(&self) -> &Arc<str> {
        &self.id
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.entries).len()
    }

    /// Takes a seat at what the scope has of `name`; at something new if that was lost.
    fn sit(self: &Arc<Self>, name: &LockName) -> Seat {
        let found = lock(&self.entries).get(name).map(Arc::clone);
        // Looked at outside of all locks: a loss that is found out is told, to a subscriber that may ask the scope.
        let _ = found.is_some_and(|entry| entry.is_held());
        let mut entries = lock(&self.entries);
        let entry = match entries.get(name) {
            Some(entry) if !lock(&entry.state).is_known_to_be_lost() => Arc::clone(entry),
            _ => {
                let entry = Arc::new(Entry::default());
                entries.insert(name.clone(), Arc::clone(&entry));
                entry
            }
        };
        lock(&entry.state).seats += 1;
        Seat { scope: Arc::clone(self), name: name.clone(), entry, taken: true }
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        let mut scopes = lock(&self.shared.scopes);
        // Another of the same name may have been made since the last reference went.
        if scopes.get(&self.id).is_some_and(|scope| scope.strong_count() == 0) {
            scopes.remove(&self.id);
        }
    }
}

#[derive(Default)]
struct Entry {
    state: Mutex<State>,
    changed: Notify,
}

impl Entry {
    /// Whether it has a hold that may be believed; asked outside of its lock.
    fn is_held(&self) -> bool {
        let hold = lock(&self.state).hold();
        hold.is_some_and(|hold| hold.validity.is_held())
    }
}

#[derive(Default)]
struct State {
    /// Calls under way and guards.
    seats: usize,
    stage: Stage,
    /// How many attempts were begun, and how the last ended that was not granted.
    attempts: u64,
    ended: Option<Ended>,
}

struct Ended {
    number: u64,
    /// It was a single try, which tells a waiter nothing but that it has to wait.
    once: bool,
    claim: Claim,
    ending: Ending,
}

#[derive(Default)]
enum Stage {
    /// Nobody asks for the lock.
    #[default]
    Idle,
    Asking(Attempt),
    /// Granted, and not taken yet: nobody renews it, so that it is nobody's for longer than its ttl.
    Granted(Granted, Wish),
    /// Somebody takes it just now.
    Taking,
    Held(LockGuard, Wish),
    /// Nobody sits here any more.
    Over,
}

struct Attempt {
    task: JoinHandle<()>,
    claim: Claim,
    wish: Wish,
}

enum Ending {
    Contended,
    Failed(Arc<Error>),
}

impl State {
    fn hold(&self) -> Option<Arc<Hold>> {
        match &self.stage {
            Stage::Held(guard, _) => guard.hold(),
            _ => None,
        }
    }

    fn is_known_to_be_lost(&self) -> bool {
        self.hold().is_some_and(|hold| hold.validity.is_known_to_have_ended())
    }
}

/// One failure, told to each of several.
struct Told(Arc<Error>);

impl Told {
    fn again(failure: &Arc<Error>) -> Error {
        Error::new(failure.kind(), failure.message().to_owned()).with_source(Self(Arc::clone(failure)))
    }
}

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl std::error::Error for Told {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&*self.0)
    }
}

/// Counts for as long as it is sat on. The last to leave takes what there is with it.
pub(crate) struct Seat {
    scope: Arc<Scope>,
    name: LockName,
    entry: Arc<Entry>,
    taken: bool,
}

impl Seat {
    /// Leaves; the guard, if this was the last seat of a hold.
    pub(crate) fn leave(mut self) -> Option<LockGuard> {
        match self.stand_up()? {
            Stage::Held(guard, _) => Some(guard),
            other => {
                self.clear(other);
                None
            }
        }
    }

    fn stand_up(&mut self) -> Option<Stage> {
        if !std::mem::replace(&mut self.taken, false) {
            return None;
        }
        // Both at once, so that nobody sits down at what is being taken away.
        let mut entries = lock(&self.scope.entries);
        let mut state = lock(&self.entry.state);
        state.seats = state.seats.saturating_sub(1);
        if state.seats > 0 {
            return None;
        }
        if entries.get(&self.name).is_some_and(|entry| Arc::ptr_eq(entry, &self.entry)) {
            entries.remove(&self.name);
        }
        Some(std::mem::replace(&mut state.stage, Stage::Over))
    }

    /// Undoes or releases in the background; outside of all locks.
    fn clear(&self, stage: Stage) {
        if let Stage::Asking(attempt) = stage {
            // Joined by the reaper, so that what it undoes is pending from now on.
            let finish = async move {
                attempt.task.abort();
                let _ = attempt.task.await;
            };
            self.scope.shared.context.ledger.send(Errand::Finish(Box::pin(finish)));
        }
    }

    /// Takes what was granted, or shares what is held; `None` if that has gone meanwhile.
    fn take(self) -> std::result::Result<ReentrantGuard, Self> {
        let mut state = lock(&self.entry.state);
        match std::mem::replace(&mut state.stage, Stage::Taking) {
            Stage::Granted(granted, wish) => {
                drop(state);
                let settling = Settling(&self.entry);
                // Outside the lock: it may run a subscriber's code, and an engine's.
                if let Some(guard) = take(&self.scope.shared, granted, &wish) {
                    lock(&self.entry.state).stage = Stage::Held(guard, wish);
                }
                drop(settling);
            }
            other => {
                state.stage = other;
                drop(state);
            }
        }
        let hold = lock(&self.entry.state).hold();
        match hold.filter(|hold| hold.validity.is_held()) {
            Some(hold) => Ok(ReentrantGuard::new(hold, self)),
            None => Err(self),
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.scope.shared
    }

    /// Whether there is a hold to share: found without waiting, on whatever thread this runs.
    fn is_held(&self, asked: &Asked) -> Result<bool> {
        if !self.entry.is_held() {
            return Ok(false);
        }
        match &lock(&self.entry.state).stage {
            Stage::Held(_, first) => asked.fits(&first.options).map(|()| true),
            _ => Ok(false),
        }
    }

    /// How many calls and guards sit here.
    pub(crate) fn count(&self) -> usize {
        lock(&self.entry.state).seats
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(stage) = self.stand_up() {
            self.clear(stage);
        }
    }
}

/// Nobody takes any more, even if taking panicked.
struct Settling<'a>(&'a Entry);

impl Drop for Settling<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        if matches!(state.stage, Stage::Taking) {
            state.stage = Stage::Idle;
        }
        drop(state);
        self.0.changed.notify_waiters();
    }
}
