//! Locking a mutex that nobody can poison for long.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`; what a panicking thread left behind is taken as it is, since
/// every critical section in this crate leaves its data whole at each step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
