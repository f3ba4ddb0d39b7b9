//! Locks that were held by others when they were last asked for.
//!
//! Whoever asks again for such a lock asks by itself. On PostgreSQL it says in the same statement that it waits; on MariaDB a
//! statement for many locks the rows of held locks as well, until it commits, and a renewal that finds its row locked is put off.

use fencelock_core::LockName;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// For how long that is remembered.
const LATELY: Duration = Duration::from_secs(1);
/// Of how many locks.
const MOST: usize = 1_000;

#[derive(Default)]
pub(crate) struct Met(Mutex<HashMap<LockName, Instant>>);

impl Met {
    fn names(&self) -> MutexGuard<'_, HashMap<LockName, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another holds it.
    pub(crate) fn held(&self, name: &LockName) {
        let (mut names, now) = (self.names(), Instant::now());
        if names.len() >= MOST {
            names.retain(|_, until| *until > now);
        }
        if names.len() < MOST {
            names.insert(name.clone(), now + LATELY);
        }
    }

    /// Whether another held it when it was last asked for, a moment ago.
    pub(crate) fn was_held(&self, name: &LockName) -> bool {
        let mut names = self.names();
        match names.get(name) {
            Some(until) if *until > Instant::now() => true,
            Some(_) => {
                names.remove(name);
                false
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_met_is_forgotten() {
        let (met, name) = (Met::default(), |n: usize| LockName::new(n.to_string()).unwrap());
        (0..2 * MOST).for_each(|n| met.held(&name(n)));
        assert!(met.was_held(&name(0)) && !met.was_held(&name(MOST)), "there is room for so many");
        met.names().values_mut().for_each(|until| *until -= LATELY);
        met.held(&name(MOST));
        assert!(met.was_held(&name(MOST)) && !met.was_held(&name(0)));
        assert_eq!(met.names().len(), 1);
    }
}
