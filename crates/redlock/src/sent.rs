//! Which nodes have answered the acquire of one attempt: where one has, nothing of it can arrive there any more.

use crate::debts::Debt;
use crate::set::lock;
use fencelock_core::{Claim, Request};
use std::sync::Mutex;

/// One attempt's requests, by the place of the node.
pub(crate) struct Sent(Mutex<State>);

struct State {
    places: Vec<Place>,
    /// What the claim knows of, for all nodes alike, until each has answered.
    request: Option<Request>,
    /// What is owed by nodes that have freed what they had, should their answers not come.
    owed: Vec<(usize, Debt)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    UnderWay,
    /// Or it never left.
    Answered,
    Unanswered,
}

impl Sent {
    /// The claim knows of a request from here on.
    pub(crate) fn new(claim: &Claim, nodes: usize) -> Self {
        Self(Mutex::new(State {
            places: vec![Place::UnderWay; nodes],
            request: Some(claim.request()),
            owed: Vec::new(),
        }))
    }

    /// What came of the request to the node at `at`: it was answered or never left, if it is `settled`. The node owes what this
    /// returns.
    #[must_use]
    pub(crate) fn told(&self, at: usize, settled: bool) -> Option<Debt> {
        let mut state = lock(&self.0);
        if let Some(place) = state.places.get_mut(at) {
            *place = if settled { Place::Answered } else { Place::Unanswered };
        }
        if !state.places.contains(&Place::UnderWay)
            && let Some(request) = state.request.take()
            && !state.places.contains(&Place::Unanswered)
        {
            request.answered();
        }
        let owed = state.owed.iter().position(|(place, _)| *place == at)?;
        Some(state.owed.swap_remove(owed).1).filter(|_| !settled)
    }

    /// The node at `at` has freed what it had: it owes `debt` if its answer to the request does not come. That is returned if it is
    /// known already.
    pub(crate) fn owes_unless_answered(&self, at: usize, debt: Debt) -> Option<Debt> {
        let mut state = lock(&self.0);
        match state.places.get(at) {
            Some(Place::UnderWay) => {
                state.owed.push((at, debt));
                None
            }
            Some(Place::Unanswered) => Some(debt),
            Some(Place::Answered) | None => None,
        }
    }

    fn place(&self, at: usize) -> Option<Place> {
        lock(&self.0).places.get(at).copied()
    }

    /// Whether these are all of the claim's requests that may still arrive. Otherwise nobody knows where.
    pub(crate) fn is_all_of(&self, claim: &Claim) -> bool {
        lock(&self.0).request.as_ref().map_or_else(|| !claim.is_unanswered(), Request::is_the_only_one)
    }

    /// Whether something of them may still arrive at the node at `at`.
    pub(crate) fn may_arrive(&self, at: usize) -> bool {
        self.place(at) != Some(Place::Answered)
    }

    /// Whether that is so, and no answer is awaited that would say the contrary.
    pub(crate) fn stays_unknown(&self, at: usize) -> bool {
        !matches!(self.place(at), Some(Place::Answered | Place::UnderWay))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock_core::{LockName, Terms};
    use std::time::Duration;
    use tokio::time::Instant;

    #[test]
    fn what_is_not_known_to_be_over_may_arrive() {
        let claim = Terms::new(LockName::new("a").unwrap(), Duration::from_secs(1)).mint().unwrap();
        let sent = Sent::new(&claim, 3);
        assert!(claim.was_sent() && claim.is_unanswered() && sent.is_all_of(&claim));
        assert!(sent.told(0, true).is_none() && sent.told(1, false).is_none());
        assert_eq!([0, 1, 2, 3].map(|at| sent.may_arrive(at)), [false, true, true, true]);
        assert_eq!([0, 1, 2, 3].map(|at| sent.stays_unknown(at)), [false, true, false, true]);
        assert!(sent.is_all_of(&claim));
        assert!(sent.told(2, true).is_none());
        assert!(!sent.may_arrive(2) && claim.is_unanswered(), "the second never answered");
        assert!(!sent.is_all_of(&claim), "nor is it known any more whose that was");
        let again = Sent::new(&claim, 3);
        assert!(!again.is_all_of(&claim), "what was asked before");
    }

    #[test]
    fn what_is_owed_is_owed_only_without_an_answer() {
        let claim = Terms::new(LockName::new("a").unwrap(), Duration::from_secs(1)).mint().unwrap();
        let sent = Sent::new(&claim, 3);
        let debt = || Debt { keys: Default::default(), args: Default::default(), until: Instant::now() };
        assert!(sent.owes_unless_answered(0, debt()).is_none() && sent.owes_unless_answered(1, debt()).is_none());
        assert!(sent.told(0, true).is_none() && sent.told(1, false).is_some() && sent.told(2, false).is_none());
        let owed = [0, 1, 2].map(|at| sent.owes_unless_answered(at, debt()).is_some());
        assert_eq!(owed, [false, true, true]);
    }

    #[test]
    fn what_each_has_answered_is_over() {
        let claim = Terms::new(LockName::new("a").unwrap(), Duration::from_secs(1)).mint().unwrap();
        let sent = Sent::new(&claim, 3);
        assert!([1, 0, 2].into_iter().all(|at| sent.told(at, true).is_none()));
        assert!(!claim.is_unanswered() && sent.is_all_of(&claim) && !(0..3).any(|at| sent.may_arrive(at)));
        drop(claim.request());
        assert!(!sent.is_all_of(&claim), "somebody else's");
    }
}
