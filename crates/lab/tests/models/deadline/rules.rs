//! What the server does with a request, a client with an answer, and time with both.

use super::{Client, Flaw, Kind, Leases, Message, Phase, State, TTL};

impl Leases {
    /// How long a hold is believed from when its request was sent.
    pub(super) fn deadline(self) -> u8 {
        if self.flaw == Flaw::NoDriftAllowance { TTL } else { TTL - 1 }
    }

    /// Whether the client's clock stands still now.
    pub(super) fn stands(self, client: &Client) -> bool {
        self.flaw == Flaw::ClockStopsInSuspend && client.suspended
    }

    pub(super) fn send(self, state: &mut State, client: u8, kind: Kind) {
        let left = if matches!(kind, Kind::Acquire | Kind::Renew) { self.deadline() } else { 0 };
        state.under_way.push(Message { claim: state.claim_of(client), kind, left });
    }

    pub(super) fn grant(self, state: &mut State, request: Message, answer: Kind) {
        state.dead_granted |= state.owner != Some(request.claim) && state.dead.contains(&request.claim);
        (state.owner, state.lease) = (Some(request.claim), TTL);
        state.under_way.push(Message { kind: answer, ..request });
    }

    pub(super) fn serve(self, state: &mut State, request: Message) {
        let (claim, flaw) = (request.claim, self.flaw);
        let (owns, free) = (state.owner == Some(claim), state.owner.is_none());
        match request.kind {
            Kind::Acquire if (owns || free) && !state.void.contains(&claim) => {
                self.grant(state, request, Kind::Granted);
            }
            Kind::Renew if owns || flaw == Flaw::RenewalTakesOver || (free && flaw == Flaw::RenewalCreates) => {
                self.grant(state, request, Kind::Renewed);
            }
            Kind::Release { .. } | Kind::Undo => {
                let unchecked = flaw == Flaw::ReleaseUnchecked && request.kind != Kind::Undo;
                if owns || unchecked {
                    (state.owner, state.lease) = (None, 0);
                }
                if request.kind != (Kind::Release { voids: false }) && flaw != Flaw::IdsNotVoided {
                    state.void.push(claim);
                }
                state.dead.push(claim);
            }
            _ => {}
        }
    }

    pub(super) fn answered(self, state: &mut State, answer: Message) {
        let current = state.claim_of(answer.claim.client) == answer.claim;
        let client = &mut state.clients[usize::from(answer.claim.client)];
        let left = if self.flaw == Flaw::DeadlineFromReply { self.deadline() } else { answer.left };
        match (answer.kind, client.phase) {
            // One that comes too late is given up.
            (Kind::Granted, Phase::Asking) if current && left > 0 => {
                (client.phase, client.left) = (Phase::Holding, left);
            }
            (Kind::Renewed, Phase::Holding) if current => client.left = client.left.max(left),
            (Kind::Renewed, Phase::Lost) if current && left > 0 && self.flaw == Flaw::RenewalRevives => {
                (client.phase, client.left) = (Phase::Holding, left);
                state.revived = true;
            }
            _ => {}
        }
    }

    pub(super) fn pass(self, state: &mut State, missed: [bool; 2]) {
        state.lease = state.lease.saturating_sub(1);
        if state.lease == 0 {
            state.owner = None;
        }
        for ((at, client), missed) in (0..).zip(&mut state.clients).zip(missed) {
            if self.stands(client) {
                continue;
            }
            if missed {
                client.steady = 0;
                continue;
            }
            client.steady = (client.steady + 1).min(TTL - 1);
            client.left = client.left.saturating_sub(1);
            if client.left == 0 && client.phase == Phase::Holding {
                client.phase = Phase::Lost;
            }
            for message in state.under_way.iter_mut().filter(|message| message.claim.client == at) {
                message.left = message.left.saturating_sub(1);
            }
        }
    }
}
