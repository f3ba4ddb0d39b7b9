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
//! effect any more need not arrive; the two clients are interchangeable.

use crate::{assert_found, assert_sound, large};
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

impl Leases {
    /// How long a hold is believed from when its request was sent.
    fn deadline(self) -> u8 {
        if self.flaw == Flaw::NoDriftAllowance { TTL } else { TTL - 1 }
    }

    /// Whether the client's clock stands still now.
    fn stands(self, client: &Client) -> bool {
        self.flaw == Flaw::ClockStopsInSuspend && client.suspended
    }

    fn send(self, state: &mut State, client: u8, kind: Kind) {
        let left = if matches!(kind, Kind::Acquire | Kind::Renew) { self.deadline() } else { 0 };
        state.under_way.push(Message { claim: state.claim_of(client), kind, left });
    }

    fn grant(self, state: &mut State, request: Message, answer: Kind) {
        state.dead_granted |= state.owner != Some(request.claim) && state.dead.contains(&request.claim);
        (state.owner, state.lease) = (Some(request.claim), TTL);
        state.under_way.push(Message { kind: answer, ..request });
    }

    fn serve(self, state: &mut State, request: Message) {
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

    fn answered(self, state: &mut State, answer: Message) {
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

    fn pass(self, state: &mut State, missed: [bool; 2]) {
        state.lease = state.lease.saturating_sub(1);
        if state.lease == 0 {
            state.owner = None;
        }
        for at in 0..2 {
            let client = &mut state.clients[at];
            if self.stands(client) {
                continue;
            }
            if missed[at] {
                client.steady = 0;
                continue;
            }
            client.steady = (client.steady + 1).min(TTL - 1);
            client.left = client.left.saturating_sub(1);
            if client.left == 0 && client.phase == Phase::Holding {
                client.phase = Phase::Lost;
            }
            for message in state.under_way.iter_mut().filter(|message| usize::from(message.claim.client) == at) {
                message.left = message.left.saturating_sub(1);
            }
        }
    }

    /// One of the states that differ from this one in nothing that matters.
    fn simplified(self, mut state: State) -> State {
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
        for state in [&mut state, &mut swapped] {
            state.under_way.sort_unstable();
            state.void.sort_unstable();
            state.void.dedup();
            state.dead.sort_unstable();
            state.dead.dedup();
        }
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

/// Three claims are what the longest of the flaws needs: one's release, late, and two that meet.
fn leases(flaw: Flaw) -> Leases {
    let budget = Budget { claims: 3, repeats: 0, renewals: 1, suspensions: 1 };
    Leases { flaw, expires: true, budget }
}

/// What is kept alive by a session that lives for ever.
fn session(flaw: Flaw) -> Leases {
    let budget = Budget { claims: 4, repeats: 2, renewals: 0, suspensions: 0 };
    Leases { flaw, expires: false, budget }
}

#[test]
fn leases_are_sound() {
    let ours = leases(Flaw::None);
    assert_sound("renewed once, suspended once", ours);
    let repeats = Budget { claims: 2, repeats: 1, renewals: 1, suspensions: 0 };
    assert_sound("asked again", Leases { budget: repeats, ..ours });
    if large() {
        let more = Budget { claims: 4, repeats: 1, renewals: 2, suspensions: 1 };
        assert_sound("four claims", Leases { budget: more, ..ours });
    }
}

#[test]
fn a_session_that_never_ends_is_sound() {
    assert_sound("no clock", session(Flaw::None));
}

#[test]
fn a_deadline_from_the_reply_is_found() {
    assert_found("deadline from the reply", ALONE, leases(Flaw::DeadlineFromReply));
}

#[test]
fn a_clock_that_stops_in_suspend_is_found() {
    assert_found("clock stops in suspend", ALONE, leases(Flaw::ClockStopsInSuspend));
}

#[test]
fn a_deadline_that_allows_for_no_drift_is_found() {
    assert_found("no allowance for drift", ALONE, leases(Flaw::NoDriftAllowance));
}

#[test]
fn a_renewal_that_revives_is_found() {
    assert_found("the client believes again", FINAL, leases(Flaw::RenewalRevives));
    assert_found("the server makes the lock anew", DEAD, leases(Flaw::RenewalCreates));
    assert_found("the server lets a renewal take over", ALONE, leases(Flaw::RenewalTakesOver));
}

#[test]
fn a_release_without_owner_check_is_found() {
    assert_found("release of another's", ALONE, leases(Flaw::ReleaseUnchecked));
}

#[test]
fn an_acquire_that_arrives_after_its_undo_is_found() {
    assert_found("granted after its undo", DEAD, leases(Flaw::IdsNotVoided));
    assert_found("granted after its undo, in a session", FREED, session(Flaw::IdsNotVoided));
}
