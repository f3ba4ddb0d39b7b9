//! Maps by claim id, which is random already and need not be hashed.

use crate::ClaimId;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

pub(crate) type ById<T> = HashMap<ClaimId, T, BuildHasherDefault<Taken>>;
pub(crate) type Ids = HashSet<ClaimId, BuildHasherDefault<Taken>>;

/// Takes the bits as they come: for ids that this process has drawn, of which nobody can choose any to collide.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Taken(u64);

impl Hasher for Taken {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u128(&mut self, id: u128) {
        let [a, b, c, d, e, f, g, h, ..] = id.to_be_bytes();
        self.0 = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
    }

    /// Of what is no id, as small numbers are of which few are in use.
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_found_again() {
        let mut ids = Ids::default();
        let some: Vec<_> = (0..1_000).map(|_| ClaimId::random().unwrap()).collect();
        assert!(some.iter().all(|id| ids.insert(*id)) && some.iter().all(|id| ids.contains(id)));
        assert!(some.iter().all(|id| ids.remove(id)) && ids.is_empty());
    }
}
