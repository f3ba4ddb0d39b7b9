//! As many connections as an engine of SQL has, shared out among the tasks: a task always has the same one.
//! A pool that hands them out would cost more than some statements do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Mutex;

pub(super) type Connection<C> = Arc<Mutex<C>>;

pub(super) struct Connections<C> {
    all: Vec<Connection<C>>,
    next: AtomicUsize,
}

impl<C> Connections<C> {
    pub(super) fn new(all: impl IntoIterator<Item = C>) -> Self {
        Self { all: all.into_iter().map(|one| Arc::new(Mutex::new(one))).collect(), next: AtomicUsize::new(0) }
    }

    /// The next task's.
    pub(super) fn next(&self) -> Option<Connection<C>> {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        self.all.get(next.checked_rem(self.all.len())?).map(Arc::clone)
    }
}
