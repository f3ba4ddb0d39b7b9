//! A mutex that outlives a panic of its holder.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Nothing that runs under these locks can leave a value half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
