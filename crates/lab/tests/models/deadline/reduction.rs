//! What is left out because it cannot make a difference.

use super::{Claim, Flaw, Kind, Leases, Message, Phase, State, TTL};

impl State {
    fn sort(&mut self) {
        self.under_way.sort_unstable();
        for claims in [&mut self.void, &mut self.dead] {
            claims.sort_unstable();
            claims.dedup();
        }
    }
}

impl Leases {
    /// One of the states that differ from this one in nothing that matters.
    pub(super) fn simplified(self, mut state: State) -> State {
        state.sort();
        if self.plain {
            return state;
        }
        for client in &mut state.clients {
            if client.phase == Phase::Lost && self.flaw != Flaw::RenewalRevives {
                client.phase = Phase::Idle;
            }
        }
        let before = state.clone();
        state.under_way.retain(|message| self.matters(&before, message));
        let requested = |claim: &Claim| {
            state.under_way.iter().any(|m| m.claim == *claim && matches!(m.kind, Kind::Acquire | Kind::Renew))
        };
        state.void.retain(requested);
        state.dead.retain(requested);
        // The rate is bounded from when a request was sent, so before the first one any is as good.
        for (at, client) in (0..).zip(&mut state.clients) {
            let timed = state.under_way.iter().any(|m| m.claim.client == at && m.left > 0);
            if client.left == 0 && !timed {
                client.steady = TTL - 1;
            }
        }
        let mut swapped = state.clone();
        swapped.clients.swap(0, 1);
        let claims = swapped.void.iter_mut().chain(&mut swapped.dead).chain(&mut swapped.owner);
        for claim in claims.chain(swapped.under_way.iter_mut().map(|message| &mut message.claim)) {
            claim.client = 1 - claim.client;
        }
        swapped.sort();
        state.min(swapped)
    }

    /// Whether the message can still have an effect.
    fn matters(self, state: &State, message: &Message) -> bool {
        let claim = message.claim;
        let owned = state.owner == Some(claim) || state.is_under_way(claim, |kind| kind == Kind::Acquire);
        match message.kind {
            Kind::Acquire => !state.void.contains(&claim),
            Kind::Renew => owned || matches!(self.flaw, Flaw::RenewalTakesOver | Flaw::RenewalCreates),
            Kind::Undo => owned || self.flaw == Flaw::RenewalCreates,
            Kind::Release { .. } => {
                owned || matches!(self.flaw, Flaw::ReleaseUnchecked | Flaw::RenewalCreates | Flaw::RenewalTakesOver)
            }
            Kind::Granted | Kind::Renewed => {
                let timely = message.left > 0 || self.flaw == Flaw::DeadlineFromReply;
                let lost = state.clients[usize::from(claim.client)].phase == Phase::Lost;
                timely && (state.is_pursued(claim) || (lost && state.claim_of(claim.client) == claim))
            }
        }
    }
}
