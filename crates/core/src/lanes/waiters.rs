//! Who waits in a lane.

use crate::by_id::ById;
use crate::{Claim, ClaimId};

/// The claims that wait, in no order. One of them has its place here, so that one alone takes no memory besides.
#[derive(Default)]
pub(super) struct Waiters {
    one: Option<Claim>,
    others: ById<Claim>,
}

impl Waiters {
    pub(super) fn insert(&mut self, claim: Claim) {
        if self.one.is_none() {
            self.one = Some(claim);
        } else {
            self.others.insert(claim.id(), claim);
        }
    }

    pub(super) fn remove(&mut self, id: ClaimId) {
        if self.one.take_if(|one| one.id() == id).is_none() {
            self.others.remove(&id);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Claim> {
        self.one.iter().chain(self.others.values())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.one.is_none() && self.others.is_empty()
    }

    /// The only one, if there is no other.
    pub(super) fn alone(&self) -> Option<&Claim> {
        let mut all = self.iter();
        all.next().filter(|_| all.next().is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LockName, Terms};
    use std::time::Duration;

    #[test]
    fn whoever_leaves_the_others_are_still_there() {
        let claim = || Terms::new(LockName::new("a").unwrap(), Duration::from_secs(1)).mint().unwrap();
        let (first, second, third) = (claim(), claim(), claim());
        let mut waiters = Waiters::default();
        assert!(waiters.is_empty() && waiters.alone().is_none());
        waiters.insert(first.clone());
        assert_eq!(waiters.alone().map(Claim::id), Some(first.id()));
        waiters.insert(second.clone());
        assert!(waiters.alone().is_none() && waiters.iter().count() == 2);
        waiters.remove(first.id());
        assert_eq!(waiters.alone().map(Claim::id), Some(second.id()));
        waiters.insert(third.clone());
        waiters.remove(second.id());
        assert_eq!(waiters.alone().map(Claim::id), Some(third.id()));
        waiters.remove(third.id());
        assert!(waiters.is_empty());
    }
}
