//! The token protocol as a state machine, whose every interleaving within small bounds is looked at.
//!
//! Locks are left out: tokens must be right however badly locks behave, since a
//! clock that jumps takes them away. Requests may arrive at any time, late, never, or
//! after their attempt was given up; answers may be lost; a node may lose its data.
//!
//! What cannot make a difference is left out, so that all states can be looked at in
//! seconds: a proposal that a node would refuse need not arrive; an answer that is
//! lost is one that is never counted; clients and nodes are interchangeable.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    reason = "a test"
)]

use stateright::{Checker, Model, Property};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const NODES: usize = 3;
const MAJORITY: usize = NODES / 2 + 1;
/// The largest number that is guessed.
const LARGEST_GUESS: u8 = 4;
/// For one model.
const LIMIT: Duration = Duration::from_secs(60);

/// How a token is agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    /// Each node counts up by itself; the token is the largest of a majority.
    CountUp,
    /// The same, and a majority raises its counters to the token before it is used.
    CountUpAndWriteBack,
    /// Ours: one more than the largest of a majority, accepted by a majority where it is larger.
    Propose,
    /// The same, and accepted where it is equal too, as it would be if a proposal could be sent again.
    ProposeOrEqual,
    /// Ours in one round: any number larger than those that the client has proposed, and again a larger one if it is
    /// refused. It has heard nothing: what it hears makes no number possible that is not possible so.
    Guess,
    /// The same, and accepted where it is equal too.
    GuessOrEqual,
    /// The same as `Guess`, and one node less than a majority is enough.
    GuessOfFewer,
}

impl Protocol {
    fn counts_up(self) -> bool {
        matches!(self, Self::CountUp | Self::CountUpAndWriteBack)
    }

    fn guesses(self) -> bool {
        matches!(self, Self::Guess | Self::GuessOrEqual | Self::GuessOfFewer)
    }

    fn enough(self) -> usize {
        if self == Self::GuessOfFewer { MAJORITY - 1 } else { MAJORITY }
    }
}

/// What becomes of a node that loses its counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    Never,
    /// It counts from nothing again, and nobody notices.
    Silent,
    /// It takes no part any more.
    TakesNoPart,
    /// It gets the largest counter of a majority at once.
    ReseededAtOnce,
    /// It gets it after the attempts that it took part in are over.
    ReseededAfterDelay,
}

#[derive(Clone, Copy, Debug)]
struct Tokens {
    protocol: Protocol,
    loss: Loss,
    clients: u8,
    /// Grants each client is to get.
    grants: u8,
    /// Attempts each client may give up.
    retries: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    Reading,
    Proposing,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Client {
    phase: Phase,
    grants: u8,
    retries: u8,
    attempt: u8,
    /// The largest token that was granted before the attempt began.
    before: u8,
    /// That was read; of one that guesses, the largest that it ever proposed.
    largest: u8,
    /// Bits of the nodes that have been read, and that have accepted.
    read: u8,
    accepted: u8,
    token: u8,
    /// Began before the node was lost.
    old: bool,
}

/// A proposal under way: node, client, attempt, token.
type Proposal = (u8, u8, u8, u8);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    counters: [Option<u8>; NODES],
    clients: Vec<Client>,
    under_way: BTreeSet<Proposal>,
    granted: BTreeSet<u8>,
    losses: u8,
    repeated: bool,
    went_back: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    Begin(u8),
    Read {
        client: u8,
        node: u8,
        answer_lost: bool,
    },
    Propose(u8),
    Guess {
        client: u8,
        token: u8,
    },
    /// Again, with another number, in the same attempt.
    Again(u8),
    Arrive(Proposal),
    Grant(u8),
    GiveUp(u8),
    Lose(u8),
    Reseed(u8),
}

fn bits(set: u8) -> usize {
    set.count_ones() as usize
}

impl Model for Tokens {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let client = Client {
            phase: Phase::Idle,
            grants: self.grants,
            retries: self.retries,
            attempt: 0,
            before: 0,
            largest: 0,
            read: 0,
            accepted: 0,
            token: 0,
            old: false,
        };
        vec![State {
            counters: [Some(0); NODES],
            clients: vec![client; usize::from(self.clients)],
            under_way: BTreeSet::new(),
            granted: BTreeSet::new(),
            losses: u8::from(self.loss != Loss::Never),
            repeated: false,
            went_back: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.repeated || state.went_back {
            return;
        }
        for (client, c) in (0..).zip(&state.clients) {
            match c.phase {
                Phase::Idle if c.grants > 0 => actions.push(Action::Begin(client)),
                Phase::Idle => {}
                Phase::Reading if self.protocol.guesses() => {
                    let larger = c.largest + 1..=LARGEST_GUESS;
                    actions.extend(larger.map(|token| Action::Guess { client, token }));
                }
                Phase::Reading => {
                    for node in 0..NODES as u8 {
                        let enough = !self.protocol.counts_up() && bits(c.read) >= MAJORITY;
                        if !enough && c.read & (1 << node) == 0 && state.counters[usize::from(node)].is_some() {
                            actions.push(Action::Read { client, node, answer_lost: false });
                            if self.protocol.counts_up() {
                                actions.push(Action::Read { client, node, answer_lost: true });
                            }
                        }
                    }
                    if bits(c.read) >= MAJORITY {
                        actions.push(Action::Propose(client));
                    }
                }
                Phase::Proposing if bits(c.accepted) >= self.protocol.enough() => {
                    actions.push(Action::Grant(client));
                }
                Phase::Proposing if self.protocol.guesses() && c.retries > 0 => actions.push(Action::Again(client)),
                Phase::Proposing => {}
            }
            if c.phase != Phase::Idle && (c.retries > 0 || c.old) {
                actions.push(Action::GiveUp(client));
            }
        }
        for proposal in &state.under_way {
            if self.accepts(state, proposal) {
                actions.push(Action::Arrive(*proposal));
            }
        }
        for node in 0..NODES as u8 {
            match state.counters[usize::from(node)] {
                Some(_) if state.losses > 0 => actions.push(Action::Lose(node)),
                None => actions.push(Action::Reseed(node)),
                Some(_) => {}
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let newest = state.granted.last().copied().unwrap_or(0);
        match action {
            Action::Begin(client) => {
                let c = &mut state.clients[usize::from(client)];
                *c = Client { phase: Phase::Reading, attempt: c.attempt + 1, before: newest, ..self.idle(c) };
            }
            Action::Read { client, node, answer_lost } => {
                let counter = state.counters[usize::from(node)].as_mut()?;
                if self.protocol.counts_up() {
                    *counter += 1;
                }
                let (value, c) = (*counter, &mut state.clients[usize::from(client)]);
                if value > 8 {
                    return None;
                }
                if !answer_lost {
                    c.read |= 1 << node;
                    c.largest = c.largest.max(value);
                }
            }
            Action::Propose(client) => {
                let c = &mut state.clients[usize::from(client)];
                c.phase = Phase::Proposing;
                c.token = c.largest + u8::from(!self.protocol.counts_up());
                if self.protocol == Protocol::CountUp {
                    c.accepted = u8::MAX;
                } else {
                    let (attempt, token) = (c.attempt, c.token);
                    state.under_way.extend((0..NODES as u8).map(|node| (node, client, attempt, token)));
                }
            }
            Action::Guess { client, token } => {
                let c = &mut state.clients[usize::from(client)];
                (c.phase, c.token, c.largest) = (Phase::Proposing, token, token);
                let attempt = c.attempt;
                state.under_way.extend((0..NODES as u8).map(|node| (node, client, attempt, token)));
            }
            Action::Again(client) => {
                let c = &mut state.clients[usize::from(client)];
                (c.phase, c.attempt, c.retries) = (Phase::Reading, c.attempt + 1, c.retries - 1);
                (c.read, c.accepted, c.token) = (0, 0, 0);
            }
            Action::Arrive(proposal) => {
                state.under_way.remove(&proposal);
                let (node, client, attempt, token) = proposal;
                let counter = &mut state.counters[usize::from(node)];
                *counter = counter.map(|c| c.max(token));
                let c = &mut state.clients[usize::from(client)];
                if c.phase == Phase::Proposing && c.attempt == attempt {
                    c.accepted |= 1 << node;
                }
            }
            Action::Grant(client) => {
                let c = &mut state.clients[usize::from(client)];
                state.went_back = c.token <= c.before;
                c.grants -= 1;
                let token = c.token;
                *c = self.idle(c);
                state.repeated = !state.granted.insert(token);
            }
            Action::GiveUp(client) => {
                let c = &mut state.clients[usize::from(client)];
                *c = Client { retries: c.retries.saturating_sub(1), ..self.idle(c) };
            }
            Action::Lose(node) => {
                state.losses -= 1;
                state.counters[usize::from(node)] = (self.loss == Loss::Silent).then_some(0);
                state.clients.iter_mut().for_each(|c| c.old = c.phase != Phase::Idle);
            }
            Action::Reseed(node) => {
                let others: Vec<u8> = state.counters.iter().flatten().copied().collect();
                let early = state.clients.iter().any(|c| c.old);
                match self.loss {
                    Loss::ReseededAtOnce => {}
                    Loss::ReseededAfterDelay if !early => {}
                    _ => return None,
                }
                if others.len() < MAJORITY {
                    return None;
                }
                state.counters[usize::from(node)] = others.into_iter().max();
            }
        }
        Some(self.simplified(state))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no token twice", |_, state: &State| !state.repeated),
            Property::always("tokens grow", |_, state: &State| !state.went_back),
            Property::sometimes("two grants", |_, state: &State| state.granted.len() >= 2),
        ]
    }
}

impl Tokens {
    fn accepts(&self, state: &State, (node, _, _, token): &Proposal) -> bool {
        state.counters[usize::from(*node)].is_some_and(|c| match self.protocol {
            Protocol::Propose | Protocol::Guess | Protocol::GuessOfFewer => *token > c,
            Protocol::ProposeOrEqual | Protocol::GuessOrEqual => *token >= c,
            Protocol::CountUp | Protocol::CountUpAndWriteBack => true,
        })
    }

    fn idle(&self, c: &Client) -> Client {
        let largest = if self.protocol.guesses() { c.largest } else { 0 };
        Client { phase: Phase::Idle, before: 0, largest, read: 0, accepted: 0, token: 0, old: false, ..c.clone() }
    }

    /// One of the states that differ from this one in nothing that matters.
    fn simplified(&self, mut state: State) -> State {
        // While a counter can still go back, what would be refused now may be accepted later.
        let never_back = matches!(self.loss, Loss::Never | Loss::TakesNoPart);
        if never_back || (state.losses == 0 && state.counters.iter().all(Option::is_some)) {
            let possible: BTreeSet<_> =
                state.under_way.iter().filter(|proposal| self.accepts(&state, proposal)).copied().collect();
            state.under_way = possible;
        }
        let place = |order: &[usize], old: u8| order.iter().position(|was| *was == usize::from(old)).unwrap_or(0) as u8;
        let mut clients: Vec<usize> = (0..state.clients.len()).collect();
        clients.sort_by_key(|client| {
            let c = &state.clients[*client];
            (c.phase as u8, c.token, c.accepted, c.read, c.largest, c.grants, c.retries)
        });
        state.clients = clients.iter().map(|was| state.clients[*was].clone()).collect();
        let mut nodes: Vec<usize> = (0..NODES).collect();
        nodes.sort_by_key(|node| {
            let bit = |set: u8| set >> node & 1;
            let seen: Vec<_> = state.clients.iter().map(|c| (bit(c.read), bit(c.accepted))).collect();
            (state.counters[*node], seen)
        });
        state.counters = std::array::from_fn(|node| state.counters[nodes[node]]);
        let moved = |set: u8| {
            if set == u8::MAX {
                set
            } else {
                (0..NODES).filter(|at| set >> nodes[*at] & 1 == 1).map(|at| 1 << at).sum()
            }
        };
        for c in &mut state.clients {
            (c.read, c.accepted) = (moved(c.read), moved(c.accepted));
        }
        state.under_way = state
            .under_way
            .iter()
            .map(|(node, client, attempt, token)| (place(&nodes, *node), place(&clients, *client), *attempt, *token))
            .collect();
        state
    }
}

/// The first property that does not hold, with what led there.
fn fault(what: &str, model: Tokens) -> Option<&'static str> {
    let begun = Instant::now();
    let checker = model.checker().threads(2).timeout(LIMIT).spawn_bfs().join();
    let fault = ["no token twice", "tokens grow"].into_iter().find(|name| checker.discovery(name).is_some());
    println!(
        "{what}: {} states in {:.1?}, {}",
        checker.unique_state_count(),
        begun.elapsed(),
        fault.unwrap_or("sound")
    );
    if let Some(path) = fault.and_then(|name| checker.discovery(name)) {
        println!("  {:?}", path.into_actions());
    } else {
        assert!(begun.elapsed() < LIMIT, "{what}: not all states were looked at in time");
        assert!(checker.discovery("two grants").is_some(), "{what}: nothing happens in this model");
    }
    fault
}

fn model(protocol: Protocol, loss: Loss, clients: u8, grants: u8, retries: u8) -> Tokens {
    Tokens { protocol, loss, clients, grants, retries }
}

#[test]
fn ours_is_sound() {
    let ours = |loss, clients, grants, retries| model(Protocol::Propose, loss, clients, grants, retries);
    assert_eq!(fault("two clients, one retry each", ours(Loss::Never, 2, 1, 1)), None);
    assert_eq!(fault("two clients, two grants each", ours(Loss::Never, 2, 2, 0)), None);
    assert_eq!(fault("a node takes no part after its loss", ours(Loss::TakesNoPart, 2, 1, 1)), None);
    assert_eq!(fault("a node is re-seeded after the delay", ours(Loss::ReseededAfterDelay, 2, 1, 0)), None);
}

/// No majority is read before a number is proposed, and none need be.
#[test]
fn one_round_is_sound() {
    let ours = |loss, clients, grants, retries| model(Protocol::Guess, loss, clients, grants, retries);
    assert_eq!(fault("guesses, two clients, one retry each", ours(Loss::Never, 2, 1, 1)), None);
    assert_eq!(fault("guesses, two clients, two grants each", ours(Loss::Never, 2, 2, 0)), None);
    assert_eq!(fault("guesses, a node takes no part after its loss", ours(Loss::TakesNoPart, 2, 1, 1)), None);
    assert_eq!(fault("guesses, a node is re-seeded after the delay", ours(Loss::ReseededAfterDelay, 2, 1, 0)), None);
}

#[test]
fn one_round_of_three_clients_is_sound() {
    assert_eq!(fault("guesses, three clients", model(Protocol::Guess, Loss::Never, 3, 1, 0)), None);
}

#[test]
fn one_round_that_accepts_the_same_number_twice_is_not() {
    assert!(fault("guesses, equal is accepted", model(Protocol::GuessOrEqual, Loss::Never, 2, 1, 0)).is_some());
}

#[test]
fn one_round_that_counts_less_than_a_majority_is_not() {
    assert!(fault("guesses, fewer are enough", model(Protocol::GuessOfFewer, Loss::Never, 2, 1, 0)).is_some());
}

#[test]
fn three_clients_are_sound() {
    assert_eq!(fault("three clients", model(Protocol::Propose, Loss::Never, 3, 1, 0)), None);
}

#[test]
fn counting_up_at_each_node_is_not() {
    assert!(fault("largest of counters", model(Protocol::CountUp, Loss::Never, 2, 2, 1)).is_some());
    assert!(fault("the same, written back", model(Protocol::CountUpAndWriteBack, Loss::Never, 2, 1, 0)).is_some());
}

#[test]
fn accepting_the_same_number_twice_is_not() {
    assert!(fault("equal is accepted", model(Protocol::ProposeOrEqual, Loss::Never, 2, 1, 0)).is_some());
}

#[test]
fn a_counter_that_is_lost_silently_is_found() {
    assert!(fault("silent loss", model(Protocol::Propose, Loss::Silent, 2, 1, 0)).is_some());
}

#[test]
fn re_seeding_at_once_is_found() {
    assert!(fault("re-seeded at once", model(Protocol::Propose, Loss::ReseededAtOnce, 3, 1, 0)).is_some());
}
