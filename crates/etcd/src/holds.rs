//! The holds of one lease.

use crate::shared::{Shared, State};
use crate::sync::lock;
use crate::watches::Place;
use fencelock_core::{ClaimId, Validity};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

#[derive(Default)]
pub(crate) struct Holds(Mutex<HashMap<ClaimId, Held>>);

struct Held {
    validity: Validity,
    place: Arc<Place>,
}

impl Holds {
    pub(crate) fn validities(&self) -> Vec<Validity> {
        lock(&self.0).values().map(|held| held.validity.clone()).collect()
    }

    pub(crate) fn ids(&self) -> HashSet<ClaimId> {
        lock(&self.0).keys().copied().collect()
    }

    /// Of the holds in `asked`, those whose place is not among the keys that were found have reason to ask.
    pub(crate) fn suspect_without(&self, asked: &HashSet<ClaimId>, found: &[Vec<u8>]) {
        let found: HashSet<&[u8]> = found.iter().map(Vec::as_slice).collect();
        for (id, held) in &*lock(&self.0) {
            if asked.contains(id) && !found.contains(held.place.key.as_bytes()) {
                held.place.told.notify_one();
            }
        }
    }

    /// The lease has ended: every hold has reason to look.
    pub(crate) fn suspect_all(&self) {
        lock(&self.0).values().for_each(|held| held.place.told.notify_one());
    }

    /// Some holds, as many as `most`, have reason to ask.
    pub(crate) fn suspect_some(&self, most: usize) {
        let holds = lock(&self.0);
        let first = fastrand::usize(..holds.len().max(1));
        for held in holds.values().cycle().skip(first).take(most.min(holds.len())) {
            held.place.told.notify_one();
        }
    }
}

/// Lets a hold be told of every keepalive, until it is dropped.
pub(crate) struct Registered<'a> {
    shared: &'a Shared,
    id: ClaimId,
}

impl<'a> Registered<'a> {
    pub(crate) fn new(shared: &'a Shared, validity: &Validity, place: &Arc<Place>) -> Self {
        let id = validity.claim().id();
        let held = Held { validity: validity.clone(), place: Arc::clone(place) };
        lock(&shared.holds.0).insert(id, held);
        // One that came between the grant and now.
        if let State::Alive(proof) = shared.state() {
            validity.renewed(shared.on(validity.claim().clock(), proof.sent));
        }
        Self { shared, id }
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        lock(&self.shared.holds.0).remove(&self.id);
    }
}
