//! Which lease each claim's requests were sent with, until the claim is done with.

use crate::shared::Use;
use crate::sync::lock;
use fencelock_core::{Claim, ClaimId};
use std::collections::HashMap;
use std::sync::Mutex;

/// A ticket keeps its lease in use: a claim's lease outlives whatever the claim may still have at the server.
#[derive(Default)]
pub(crate) struct Tickets(Mutex<HashMap<ClaimId, Use>>);

impl Tickets {
    pub(crate) fn insert(&self, id: ClaimId, lease: &Use) {
        lock(&self.0).insert(id, lease.clone());
    }

    pub(crate) fn get(&self, id: ClaimId) -> Option<Use> {
        lock(&self.0).get(&id).cloned()
    }

    /// The claim's request was refused: it left nothing, unless an earlier one did.
    pub(crate) fn refused(&self, claim: &Claim) {
        if !claim.is_unanswered() {
            self.remove(claim.id());
        }
    }

    pub(crate) fn remove(&self, id: ClaimId) {
        let _let_go_unlocked = lock(&self.0).remove(&id);
    }

    pub(crate) fn count(&self) -> usize {
        lock(&self.0).len()
    }
}
