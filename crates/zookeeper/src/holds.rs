//! The holds that live in a session.

use fencelock_core::{Moment, Validity};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

/// Everybody who is to be told how the session does.
#[derive(Clone, Default)]
pub(crate) struct Holds(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    holds: HashMap<u64, Held>,
    numbers: u64,
}

struct Held {
    validity: Validity,
    /// Who is to know when the session ends.
    waker: Option<Waker>,
}

/// A place among the holds; dropping it ends it.
pub(crate) struct Registered {
    holds: Holds,
    number: u64,
}

/// The moment `age` ago on a clock that says `now`.
pub(crate) fn ago(now: Moment, age: Duration) -> Moment {
    Moment::from_nanos(now.as_nanos().saturating_sub(u64::try_from(age.as_nanos()).unwrap_or(u64::MAX)))
}

impl Holds {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn register(&self, validity: &Validity) -> Registered {
        let mut table = self.table();
        table.numbers += 1;
        let number = table.numbers;
        table.holds.insert(number, Held { validity: validity.clone(), waker: None });
        Registered { holds: self.clone(), number }
    }

    /// A heartbeat was answered. `age` tells how long ago it had been sent, and is
    /// asked anew for each hold, after that hold's own clock: so nobody counts from too late.
    pub(crate) fn renewed(&self, age: impl Fn() -> Duration) {
        for Held { validity, .. } in self.table().holds.values() {
            let now = validity.now();
            validity.renewed(ago(now, age()));
        }
    }

    pub(crate) fn doubt(&self, why: &str) {
        for Held { validity, .. } in self.table().holds.values() {
            validity.doubt(&why);
        }
    }
}

impl Holds {
    /// The session has ended.
    pub(crate) fn wake(&self) {
        let wakers: Vec<_> = self.table().holds.values_mut().filter_map(|held| held.waker.take()).collect();
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Registered {
    /// Has the task be woken when the session ends. The table keeps that for all: a channel's
    /// receiver in each hold would be a tenth of what it takes.
    pub(crate) fn woken_at_end(&self, waker: &Waker) {
        if let Some(held) = self.holds.table().holds.get_mut(&self.number) {
            match &mut held.waker {
                Some(known) => known.clone_from(waker),
                none => *none = Some(waker.clone()),
            }
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.holds.table().holds.remove(&self.number);
    }
}

impl fmt::Debug for Holds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} holds", self.table().holds.len())
    }
}
