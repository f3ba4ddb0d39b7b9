//! Claims of this client that stand directly behind one another: a release tells the next by itself.
//!
//! Only who waits, or was waited for when it was granted, is in it: a lock that nobody wants costs nothing here.

use fencelock_core::ClaimId;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

#[derive(Default)]
pub(crate) struct Line {
    spots: Mutex<HashMap<ClaimId, Option<Next>>>,
    /// How many wait to be told by another.
    waiting: AtomicUsize,
}

/// Who waits to be told by the one before.
///
/// # Drop
/// It is told to look by itself.
pub(crate) struct Next {
    /// Its node.
    pub(crate) path: String,
    handed: oneshot::Sender<()>,
}

impl Next {
    /// The one before was first and is gone, and this one's node was there then.
    pub(crate) fn hand_over(self) {
        let _ = self.handed.send(());
    }
}

/// A claim's wait to be told by the one before it.
pub(crate) struct Told<'a> {
    handed: oneshot::Receiver<()>,
    waiting: &'a AtomicUsize,
}

impl<'a> Told<'a> {
    /// How many of this client wait to be told, itself among them as long as this is there.
    pub(crate) fn waiting(&self) -> &'a AtomicUsize {
        self.waiting
    }

    /// Whether the one before left it the first; else it has to look by itself.
    pub(crate) async fn heard(&mut self) -> bool {
        (&mut self.handed).await.is_ok()
    }
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A claim in the line, until this is dropped: whoever is behind it looks then.
pub(crate) struct Spot<'a> {
    line: &'a Line,
    id: ClaimId,
    kept: bool,
}

impl Line {
    fn spots(&self) -> MutexGuard<'_, HashMap<ClaimId, Option<Next>>> {
        self.spots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn enter(&self, id: ClaimId) -> Spot<'_> {
        self.spots().entry(id).or_default();
        Spot { line: self, id, kept: false }
    }

    /// Has the claim with the node `path` be told when `before` is done; none if nobody here would know.
    pub(crate) fn queue_behind(&self, before: ClaimId, path: &str) -> Option<Told<'_>> {
        let mut spots = self.spots();
        let spot = spots.get_mut(&before)?;
        let (handed, told) = oneshot::channel();
        *spot = Some(Next { path: path.to_owned(), handed });
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Some(Told { handed: told, waiting: &self.waiting })
    }

    /// Who waits to be told by this claim, if anybody still does.
    pub(crate) fn next_of(&self, id: ClaimId) -> Option<Next> {
        let next = self.spots().get_mut(&id)?.take()?;
        Some(next).filter(|next| !next.handed.is_closed())
    }

    /// The claim is done, or what becomes of its node may become known elsewhere first.
    pub(crate) fn leave(&self, id: ClaimId) {
        let _told_unlocked = self.spots().remove(&id);
    }
}

impl Spot<'_> {
    /// The claim holds the lock now. Where somebody waits behind it, it stays until its lease [leaves](Line::leave).
    pub(crate) fn granted(mut self) {
        self.kept = self.line.spots().get(&self.id).is_some_and(Option::is_some);
    }
}

impl Drop for Spot<'_> {
    fn drop(&mut self) {
        if !self.kept {
            self.line.leave(self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u8) -> ClaimId {
        ClaimId::from_bytes([n; 16])
    }

    #[tokio::test]
    async fn whoever_is_behind_is_told_or_looks() {
        let line = Line::default();
        assert!(line.queue_behind(id(1), "/b").is_none(), "nobody is there");
        let first = line.enter(id(1));
        let mut told = line.queue_behind(id(1), "/b").unwrap();
        first.granted();
        let next = line.next_of(id(1)).unwrap();
        assert_eq!(next.path, "/b");
        next.hand_over();
        assert_eq!(told.waiting().load(Ordering::Relaxed), 1);
        assert!(told.heard().await);
        drop(told);
        line.leave(id(1));
        let second = line.enter(id(2));
        let mut told = line.queue_behind(id(2), "/c").unwrap();
        drop(second);
        assert!(!told.heard().await, "it gave up");
        assert_eq!(told.waiting().load(Ordering::Relaxed), 1);
        drop(told);
        line.enter(id(3)).granted();
        assert!(line.queue_behind(id(3), "/d").is_none(), "nobody waited when it was granted");
        let fourth = line.enter(id(4));
        drop(line.queue_behind(id(4), "/e"));
        assert!(line.next_of(id(4)).is_none(), "who waited has gone");
        drop(fourth);
        assert!(line.spots().is_empty());
        assert_eq!(line.waiting.load(Ordering::Relaxed), 0);
    }
}
