//! One server that grants leases by its own clock, and two clients that believe theirs by deadlines.
//!
//! Requests and answers take any time, in any order, for ever too; an acquire may be
//! sent again with the same id; a client may stop asking at any time, and may be
//! suspended. Clocks are whole ticks: in any `TTL` ticks of the server, a client's
//! clock misses one at most. So a hold is believed for `TTL − 1` ticks from when
//! its request was sent.
//!
//! What cannot make a difference is left out: a client's clock that runs fast, and an
//! answer that says no, only end a belief earlier; a message that can have no
//! effect any more need not arrive; the two clients are interchangeable, so that in
//! a path their numbers may change places from one step to the next.

mod bounds;
mod reduction;
mod rules;

use stateright::{Model, Property};

const TTL: u8 = 3;

const ALONE: &str = "no two believe at once";
const FINAL: &str = "a loss is final";
const DEAD: &str = "what was let go of is not granted anew";
const FREED: &str = "no lock stays with a claim that was let go of";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    DeadlineFromReply,
    ClockStopsInSuspend,
    /// The deadline does not allow for clocks of different rates.
    NoDriftAllowance,
    /// The server renews whatever it holds under the name.
    RenewalTakesOver,
    /// The server makes the lock anew for a renewal that finds none.
    RenewalCreates,
    /// The client believes a renewal that is acknowledged after the deadline.
    RenewalRevives,
    /// The server frees the name, whoever has it.
    ReleaseUnchecked,
    /// An id that was undone, or released with a request unanswered, may still be granted.
    IdsNotVoided,
}

#[derive(Clone, Copy, Debug)]
struct Leases {
    flaw: Flaw,
    /// Whether time passes: it does not for what a session keeps alive.
    expires: bool,
    /// Whether all states are looked at, and not one for many that differ in nothing that matters.
    plain: bool,
    /// What all clients may do together: claims, acquires sent again, renewals, suspensions.
    budget: Budget,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Budget {
    claims: u8,
    repeats: u8,
    renewals: u8,
    suspensions: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Phase {
    Idle,
    Asking,
    Holding,
    Lost,
}

/// A client's number and how many claims it had made with this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Claim {
    client: u8,
    number: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Client {
    phase: Phase,
    claims: u8,
    /// How long it will believe its hold, by its own clock.
    left: u8,
    suspended: bool,
    /// Ticks since its clock last missed one, `TTL − 1` at most.
    steady: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Kind {
    Acquire,
    Renew,
    Release {
        voids: bool,
    },
    Undo,
    /// The answers.
    Granted,
    Renewed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Message {
    claim: Claim,
    kind: Kind,
    /// How long a hold that this proves would still be believed.
    left: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct State {
    owner: Option<Claim>,
    /// Ticks until the lease ends by the server's clock.
    lease: u8,
    clients: [Client; 2],
    /// Sorted; two that are equal are two.
    under_way: Vec<Message>,
    /// Ids the server was told to void; claims it has freed, or would have.
    void: Vec<Claim>,
    dead: Vec<Claim>,
    budget: Budget,
    revived: bool,
    dead_granted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    Ask(u8),
    AskAgain(u8),
    GiveUp(u8),
    Renew(u8),
    Release(u8),
    Suspend(u8),
    Wake(u8),
    Arrive(Message),
    /// A tick of the server's clock, which the clients' clocks may miss.
    Pass {
        missed: [bool; 2],
    },
}

impl Model for Leases {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let client = Client { phase: Phase::Idle, claims: 0, left: 0, suspended: false, steady: TTL - 1 };
        vec![State {
            owner: None,
            lease: 0,
            clients: [client; 2],
            under_way: Vec::new(),
            void: Vec::new(),
            dead: Vec::new(),
            budget: self.budget,
            revived: false,
            dead_granted: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let budget = state.budget;
        for (at, client) in (0..).zip(&state.clients) {
            if client.suspended {
                actions.push(Action::Wake(at));
                continue;
            }
            match client.phase {
                Phase::Idle | Phase::Lost if budget.claims > 0 => actions.push(Action::Ask(at)),
                Phase::Idle | Phase::Lost => {}
                Phase::Asking => {
                    actions.push(Action::GiveUp(at));
                    if budget.repeats > 0 {
                        actions.push(Action::AskAgain(at));
                    }
                }
                Phase::Holding => {
                    actions.push(Action::Release(at));
                    if budget.renewals > 0 {
                        actions.push(Action::Renew(at));
                    }
                }
            }
            if budget.suspensions > 0 && client.phase != Phase::Idle {
                actions.push(Action::Suspend(at));
            }
        }
        let mut before = None;
        for message in &state.under_way {
            let to_client = matches!(message.kind, Kind::Granted | Kind::Renewed);
            let delivered = !to_client || !state.clients[usize::from(message.claim.client)].suspended;
            if delivered && before != Some(message) {
                actions.push(Action::Arrive(*message));
            }
            before = Some(message);
        }
        if self.expires && state.something_runs() {
            let may_miss = state.clients.map(|client| client.steady == TTL - 1 && !self.stands(&client));
            for missed in [[false, false], [true, false], [false, true], [true, true]] {
                if (0..2).all(|at| may_miss[at] || !missed[at]) {
                    actions.push(Action::Pass { missed });
                }
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Ask(at) => {
                state.budget.claims -= 1;
                let client = &mut state.clients[usize::from(at)];
                client.claims += 1;
                (client.phase, client.left) = (Phase::Asking, 0);
                self.send(&mut state, at, Kind::Acquire);
            }
            Action::AskAgain(at) => {
                state.budget.repeats -= 1;
                self.send(&mut state, at, Kind::Acquire);
            }
            Action::Renew(at) => {
                state.budget.renewals -= 1;
                self.send(&mut state, at, Kind::Renew);
            }
            Action::GiveUp(at) => {
                self.send(&mut state, at, Kind::Undo);
                state.clients[usize::from(at)].phase = Phase::Idle;
            }
            Action::Release(at) => {
                let claim = state.claim_of(at);
                let voids = state.under_way.iter().any(|message| message.claim == claim);
                self.send(&mut state, at, Kind::Release { voids });
                let client = &mut state.clients[usize::from(at)];
                (client.phase, client.left) = (Phase::Idle, 0);
            }
            Action::Suspend(at) => {
                state.budget.suspensions -= 1;
                state.clients[usize::from(at)].suspended = true;
            }
            Action::Wake(at) => state.clients[usize::from(at)].suspended = false,
            Action::Arrive(message) => {
                let at = state.under_way.iter().position(|other| *other == message)?;
                state.under_way.remove(at);
                match message.kind {
                    Kind::Granted | Kind::Renewed => self.answered(&mut state, message),
                    _ => self.serve(&mut state, message),
                }
            }
            Action::Pass { missed } => self.pass(&mut state, missed),
        }
        Some(self.simplified(state))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ALONE, |_, state: &State| !state.clients.iter().all(Client::believes)),
            Property::always(FINAL, |_, state: &State| !state.revived),
            Property::always(DEAD, |_, state: &State| !state.dead_granted),
            Property::always(FREED, |model: &Self, state: &State| model.expires || !state.is_stuck()),
            Property::sometimes("held by one after the other", |_, state: &State| {
                state.clients.iter().any(Client::believes) && state.clients.iter().all(|client| client.claims > 0)
            }),
            Property::sometimes("renewed", |model: &Self, state: &State| {
                model.budget.renewals == 0 || state.under_way.iter().any(|message| message.kind == Kind::Renewed)
            }),
        ]
    }
}

impl Client {
    fn believes(&self) -> bool {
        self.phase == Phase::Holding && !self.suspended
    }
}

impl State {
    fn claim_of(&self, client: u8) -> Claim {
        Claim { client, number: self.clients[usize::from(client)].claims }
    }

    /// Whether the claim is the one that its client asks or holds with.
    fn is_pursued(&self, claim: Claim) -> bool {
        let client = &self.clients[usize::from(claim.client)];
        client.claims == claim.number && matches!(client.phase, Phase::Asking | Phase::Holding)
    }

    fn is_under_way(&self, claim: Claim, kind: impl Fn(Kind) -> bool) -> bool {
        self.under_way.iter().any(|message| message.claim == claim && kind(message.kind))
    }

    /// Whether nobody wants what the server holds, and nothing is under way that would free it.
    fn is_stuck(&self) -> bool {
        let frees = |kind| matches!(kind, Kind::Undo | Kind::Release { .. });
        self.owner.is_some_and(|owner| !self.is_pursued(owner) && !self.is_under_way(owner, frees))
    }

    /// Whether a tick would change anything.
    fn something_runs(&self) -> bool {
        self.owner.is_some()
            || self.clients.iter().any(|client| client.left > 0)
            || self.under_way.iter().any(|message| message.left > 0)
    }
}
