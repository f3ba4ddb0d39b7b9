//! Which lease each claim's requests were sent with, until the claim is done with, and who stands just behind it.

use crate::shared::Use;
use crate::sync::lock;
use fencelock_core::{Claim, ClaimId};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::oneshot;

/// A ticket keeps its lease in use: a claim's lease outlives whatever the claim may still have at the server.
#[derive(Default)]
pub(crate) struct Tickets {
    tickets: Mutex<HashMap<ClaimId, Ticket>>,
    /// How many wait to be told by another.
    waiting: AtomicUsize,
}

struct Ticket {
    lease: Use,
    next: Option<Box<Next>>,
    /// The claim is not waited for or held any more, and what becomes of its place is not known here.
    left: bool,
}

/// A claim of this client that stands just behind another, and waits to be told by it.
///
/// # Drop
/// It is told to look by itself.
pub(crate) struct Next {
    pub(crate) place: String,
    pub(crate) created: i64,
    handed: oneshot::Sender<i64>,
}

impl Next {
    /// The one before was first and is gone, and its place was there, as it was made, at this revision.
    pub(crate) fn hand_over(self, revision: i64) {
        let _ = self.handed.send(revision);
    }
}

/// A claim's wait to be told by the one before it.
pub(crate) struct Told<'a> {
    handed: oneshot::Receiver<i64>,
    waiting: &'a AtomicUsize,
}

impl<'a> Told<'a> {
    /// How many of this client wait to be told, itself among them as long as this is there.
    pub(crate) fn waiting(&self) -> &'a AtomicUsize {
        self.waiting
    }

    /// The revision at which the one before left it the first; none if it has to look by itself.
    pub(crate) async fn heard(&mut self) -> Option<i64> {
        (&mut self.handed).await.ok()
    }
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Tickets {
    pub(crate) fn insert(&self, id: ClaimId, lease: &Use) {
        lock(&self.tickets).entry(id).or_insert_with(|| Ticket { lease: lease.clone(), next: None, left: false });
    }

    pub(crate) fn get(&self, id: ClaimId) -> Option<Use> {
        lock(&self.tickets).get(&id).map(|ticket| ticket.lease.clone())
    }

    /// The claim's request was refused: it left nothing, unless an earlier one did.
    pub(crate) fn refused(&self, claim: &Claim) {
        if !claim.is_unanswered() {
            self.remove(claim.id());
        }
    }

    pub(crate) fn remove(&self, id: ClaimId) {
        let _let_go_unlocked = lock(&self.tickets).remove(&id);
    }

    pub(crate) fn count(&self) -> usize {
        lock(&self.tickets).len()
    }

    /// Has whoever stands behind `before` be told when that one is done; none if nobody here would know.
    pub(crate) fn queue_behind(&self, before: ClaimId, place: String, created: i64) -> Option<Told<'_>> {
        let mut tickets = lock(&self.tickets);
        let ticket = tickets.get_mut(&before).filter(|ticket| !ticket.left)?;
        let (handed, told) = oneshot::channel();
        ticket.next = Some(Box::new(Next { place, created, handed }));
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Some(Told { handed: told, waiting: &self.waiting })
    }

    /// Who waits to be told by this claim, if anybody still does.
    pub(crate) fn next_of(&self, id: ClaimId) -> Option<Next> {
        let next = lock(&self.tickets).get_mut(&id)?.next.take()?;
        Some(*next).filter(|next| !next.handed.is_closed())
    }

    /// What becomes of the claim's place from now on may become known elsewhere first: who waits to be told looks.
    pub(crate) fn leave(&self, id: ClaimId) {
        let mut tickets = lock(&self.tickets);
        let Some(ticket) = tickets.get_mut(&id) else { return };
        ticket.left = true;
        let next = ticket.next.take();
        drop(tickets);
        drop(next);
    }
}
