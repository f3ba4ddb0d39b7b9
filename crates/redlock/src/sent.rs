//! What became of the acquire of one attempt at each node: where it is over, nothing of it can arrive any more.

use crate::debts::Debt;
use crate::set::lock;
use fencelock_core::{Claim, Request};
use std::sync::Mutex;

/// One attempt's requests, by the place of the node.
pub(crate) struct Sent(Mutex<State>);

struct State {
    places: Vec<Option<Came>>,
    /// What the claim knows of, for all nodes alike, until each has answered.
    request: Option<Request>,
    owed: Vec<Owed>,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// It was answered, and may have taken the node's part.
    Answered,
    /// It took nothing, or never left.
    ToNothing,
    /// It may still arrive.
    Unanswered,
}

/// What a node owes that was asked to free its part before it had answered.
struct Owed {
    at: usize,
    debt: Debt,
    /// There was a part.
    freed: bool,
}

impl Owed {
    /// It is to pay: a part may come, or has come since.
    fn is_due(&self, came: Came) -> bool {
        match came {
            Came::Unanswered => true,
            // The release was first.
            Came::Answered => !self.freed,
            Came::ToNothing => false,
        }
    }
}

impl Sent {
    /// The claim knows of a request from here on.
    pub(crate) fn new(claim: &Claim, nodes: usize) -> Self {
        Self(Mutex::new(State { places: vec![None; nodes], request: Some(claim.request()), owed: Vec::new() }))
    }

    /// What came of the request to the node at `at`. The node owes what this returns.
    #[must_use]
    pub(crate) fn told(&self, at: usize, came: Came) -> Option<Debt> {
        let mut state = lock(&self.0);
        if let Some(place) = state.places.get_mut(at) {
            *place = Some(came);
        }
        if !state.places.contains(&None)
            && let Some(request) = state.request.take()
            && !state.places.contains(&Some(Came::Unanswered))
        {
            request.answered();
        }
        let owed = state.owed.iter().position(|owed| owed.at == at)?;
        let owed = state.owed.swap_remove(owed);
        owed.is_due(came).then_some(owed.debt)
    }

    /// The node at `at` was asked to free its part before it had answered, and did or found nothing. It owes what this returns,
    /// or perhaps what it is [told](Self::told) later.
    pub(crate) fn asked_to_free(&self, at: usize, freed: bool, debt: Debt) -> Option<Debt> {
        let owed = Owed { at, debt, freed };
        let mut state = lock(&self.0);
        match state.places.get(at).copied().flatten() {
            Some(came) => owed.is_due(came).then_some(owed.debt),
            None => {
                state.owed.push(owed);
                None
            }
        }
    }

    /// Whether these are all requests that were ever made under the claim's id. Otherwise nobody knows where the others may
    /// still arrive.
    pub(crate) fn is_all_of(claim: &Claim) -> bool {
        claim.requests() <= 1
    }

    /// What came of the request to the node at `at`, if that is known.
    pub(crate) fn came(&self, at: usize) -> Option<Came> {
        lock(&self.0).places.get(at).copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock_core::{LockName, Terms};
    use std::time::Duration;
    use tokio::time::Instant;

    fn claim() -> Claim {
        Terms::new(LockName::new("a").unwrap(), Duration::from_secs(1)).mint().unwrap()
    }

    fn debt() -> Debt {
        Debt { keys: Default::default(), args: Default::default(), until: Instant::now() }
    }

    #[test]
    fn one_request_stands_for_all_nodes() {
        let (claim, other) = (claim(), claim());
        let sent = Sent::new(&claim, 3);
        assert!(claim.was_sent() && claim.is_unanswered() && Sent::is_all_of(&claim));
        for (at, came) in [(1, Came::ToNothing), (0, Came::Answered)] {
            assert!(sent.told(at, came).is_none() && sent.came(at) == Some(came) && claim.is_unanswered());
        }
        assert!(sent.came(2).is_none() && sent.told(2, Came::Answered).is_none() && !claim.is_unanswered());
        drop(claim.request());
        assert!(!Sent::is_all_of(&claim), "somebody else's");
        let sent = Sent::new(&other, 3);
        assert!(
            [Came::Answered, Came::Unanswered, Came::Answered]
                .into_iter()
                .enumerate()
                .all(|(at, came)| sent.told(at, came).is_none())
        );
        assert!(other.is_unanswered() && Sent::is_all_of(&other), "one never answered, and it is known which");
    }

    #[test]
    fn what_is_owed_depends_on_what_came_of_the_request() {
        for (came, freed, due) in [
            (Came::Answered, true, false),
            (Came::Answered, false, true),
            (Came::ToNothing, false, false),
            (Came::Unanswered, true, true),
            (Came::Unanswered, false, true),
        ] {
            let sent = Sent::new(&claim(), 2);
            assert!(sent.asked_to_free(0, freed, debt()).is_none(), "not known yet");
            assert!(sent.told(1, Came::Unanswered).is_none(), "another node's");
            assert_eq!(sent.told(0, came).is_some(), due, "{came:?}, freed: {freed}");
            assert!(sent.told(0, came).is_none(), "once");
            assert_eq!(sent.asked_to_free(0, freed, debt()).is_some(), due, "{came:?} before, freed: {freed}");
        }
    }
}
