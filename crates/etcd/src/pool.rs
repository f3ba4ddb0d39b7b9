//! The leases of one client, by what claims share them.

use crate::keeper;
use crate::members::Members;
use crate::shared::{Shared, Span, Use};
use crate::sync::lock;
use fencelock_core::Claim;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use tokio::sync::watch;

/// The leases that new claims may join.
pub(crate) type Open = Arc<Mutex<HashMap<Span, Arc<Shared>>>>;

/// Hands out leases; a keeper task each keeps them alive.
///
/// # Drop
/// Leases that nobody uses any more are revoked.
pub(crate) struct Pool {
    members: Arc<Members>,
    open: Open,
    rebuilt: watch::Receiver<u64>,
}

impl Pool {
    /// `rebuilt` tells when watches may have missed something.
    pub(crate) fn new(members: Arc<Members>, rebuilt: watch::Receiver<u64>) -> Self {
        Self { members, open: Open::default(), rebuilt }
    }

    /// The lease for the claim, being granted if there is none. It lives while it is used.
    pub(crate) fn lease(&self, claim: &Claim) -> Use {
        let span = Span::of(claim);
        let mut open = lock(&self.open);
        if let Some(shared) = open.get(&span)
            && shared.is_open()
        {
            return Use::of(shared);
        }
        let shared = Arc::new(Shared::new(span, claim.clock().clone()));
        let first = Use::of(&shared);
        open.insert(span, Arc::clone(&shared));
        drop(open);
        let (members, open) = (Arc::clone(&self.members), Arc::clone(&self.open));
        tokio::spawn(keeper::keep(shared, members, open, self.rebuilt.clone()));
        first
    }
}

/// Takes the lease from those that may be joined; false if somebody uses it.
pub(crate) fn retire(open: &Open, shared: &Arc<Shared>) -> bool {
    let mut open = lock(open);
    // Uses begin under this lock, or from one that is still there.
    if shared.users() > 0 {
        return false;
    }
    forget(&mut open, shared);
    true
}

/// As [`retire`], whoever uses it.
pub(crate) fn forget(open: &mut HashMap<Span, Arc<Shared>>, shared: &Arc<Shared>) {
    if open.get(&shared.span).is_some_and(|current| Arc::ptr_eq(current, shared)) {
        open.remove(&shared.span);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for shared in lock(&self.open).values() {
            shared.closing.store(true, Ordering::SeqCst);
            shared.wake.notify_one();
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("leases", &lock(&self.open).len()).finish()
    }
}
