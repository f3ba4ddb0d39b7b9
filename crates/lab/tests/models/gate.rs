//! What stands before the data, and holders that act at any time after their grant.
//!
//! Nothing is assumed of the lock but that tokens grow: each holder may be paused
//! before each of its steps, for ever too, while later holders come and go, and what
//! it sent arrives at any time. Two rules keep every acknowledged update: enter
//! before the first read, and let every effect carry the token.
//!
//! An update reads all there is and writes that and its own mark, so that a lost update
//! is a mark that is missing. A holder waits for the answer to a write before its next
//! update: no gate can tell one token's two writes apart.

use crate::{assert_found, assert_sound, large};
use stateright::{Model, Property};

const KEPT: &str = "every acknowledged update is kept";
const REFUSED: &str = "no stale effect is accepted once a newer token has entered";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rules {
    /// Ours.
    EnterAndCheck,
    /// The write raises the highest token, and is refused if that is larger; nobody enters.
    CheckAtWriteAlone,
    /// Enters before the read; the write is taken as it comes.
    EnterAlone,
    /// Enters, but after the read.
    EnterAfterRead,
    /// The write's token is checked, and the write done in a step after that.
    CheckThenWrite,
    /// A smaller token enters too, and lowers the highest.
    EnterLowers,
}

#[derive(Clone, Copy, Debug)]
struct Gate {
    rules: Rules,
    holders: u8,
    /// Updates each holder makes.
    updates: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// Its token has not been granted.
    Waiting,
    Entering,
    Reading,
    /// Has read, and enters only now.
    EnteringLate,
    Writing,
    /// Its write has passed the check and is not done yet.
    Passed,
    Answered,
    /// Refused, or through.
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Holder {
    phase: Phase,
    /// Marks it has read.
    read: u32,
    made: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    holders: Vec<Holder>,
    /// Marks of the updates that are in the resource, and of those that were acknowledged.
    value: u32,
    acknowledged: u32,
    /// The highest token as the resource has it.
    highest: u8,
    /// The highest token that has entered, as it is.
    entered: u8,
    refused: bool,
    stale: bool,
}

/// The next step of a holder, which happens at any time, or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    Grant(u8),
    EnterArrives(u8),
    ReadArrives(u8),
    WriteArrives(u8),
    WriteIsDone(u8),
    AnswerArrives(u8),
}

impl Model for Gate {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let holder = Holder { phase: Phase::Waiting, read: 0, made: 0 };
        vec![State {
            holders: vec![holder; usize::from(self.holders)],
            value: 0,
            acknowledged: 0,
            highest: 0,
            entered: 0,
            refused: false,
            stale: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (at, holder) in (0..).zip(&state.holders) {
            let after_the_one_before = at == 0 || state.holders[usize::from(at) - 1].phase != Phase::Waiting;
            match holder.phase {
                Phase::Waiting if after_the_one_before => actions.push(Action::Grant(at)),
                Phase::Entering | Phase::EnteringLate => actions.push(Action::EnterArrives(at)),
                Phase::Reading => actions.push(Action::ReadArrives(at)),
                Phase::Writing => actions.push(Action::WriteArrives(at)),
                Phase::Passed => actions.push(Action::WriteIsDone(at)),
                Phase::Answered => actions.push(Action::AnswerArrives(at)),
                Phase::Waiting | Phase::Done => {}
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Grant(at) => {
                let enters = !matches!(self.rules, Rules::CheckAtWriteAlone | Rules::EnterAfterRead);
                state.holders[usize::from(at)].phase = if enters { Phase::Entering } else { Phase::Reading };
            }
            Action::EnterArrives(at) => {
                let token = at + 1;
                let holder = &mut state.holders[usize::from(at)];
                if token < state.highest && self.rules != Rules::EnterLowers {
                    holder.phase = Phase::Done;
                } else {
                    state.highest = token;
                    state.entered = state.entered.max(token);
                    let late = holder.phase == Phase::EnteringLate;
                    holder.phase = if late { Phase::Writing } else { Phase::Reading };
                }
            }
            Action::ReadArrives(at) => {
                let holder = &mut state.holders[usize::from(at)];
                holder.read = state.value;
                let late = self.rules == Rules::EnterAfterRead;
                holder.phase = if late { Phase::EnteringLate } else { Phase::Writing };
            }
            Action::WriteArrives(at) => {
                let token = at + 1;
                let passes = match self.rules {
                    Rules::EnterAlone => true,
                    Rules::CheckAtWriteAlone => token >= state.highest,
                    _ => token == state.highest,
                };
                if !passes {
                    state.refused = true;
                    state.holders[usize::from(at)].phase = Phase::Done;
                } else if self.rules == Rules::CheckThenWrite {
                    state.holders[usize::from(at)].phase = Phase::Passed;
                } else {
                    state.highest = state.highest.max(token);
                    self.write(&mut state, at);
                }
            }
            Action::WriteIsDone(at) => self.write(&mut state, at),
            Action::AnswerArrives(at) => {
                state.acknowledged |= self.mark(at, last.holders[usize::from(at)].made);
                let holder = &mut state.holders[usize::from(at)];
                holder.made += 1;
                holder.read = 0;
                holder.phase = if holder.made < self.updates { Phase::Reading } else { Phase::Done };
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(KEPT, |_, state: &State| state.acknowledged & !state.value == 0),
            Property::always(REFUSED, |_, state: &State| !state.stale),
            Property::sometimes("all updates are made", |model: &Self, state: &State| {
                state.acknowledged.count_ones() == u32::from(model.holders) * u32::from(model.updates)
            }),
            Property::sometimes("an effect is refused", |model: &Self, state: &State| {
                state.refused || model.rules == Rules::EnterAlone
            }),
        ]
    }
}

impl Gate {
    fn mark(self, at: u8, update: u8) -> u32 {
        1 << (at * self.updates + update)
    }

    fn write(self, state: &mut State, at: u8) {
        let holder = &mut state.holders[usize::from(at)];
        state.stale |= at + 1 < state.entered;
        state.value = holder.read | self.mark(at, holder.made);
        holder.phase = Phase::Answered;
    }
}

fn gate(rules: Rules) -> Gate {
    Gate { rules, holders: 2, updates: 1 }
}

#[test]
fn the_two_rules_are_sound() {
    assert_sound("two holders, two updates each", Gate { updates: 2, ..gate(Rules::EnterAndCheck) });
    assert_sound("three holders, two updates each", Gate { holders: 3, updates: 2, ..gate(Rules::EnterAndCheck) });
    if large() {
        assert_sound("four holders, three updates each", Gate { holders: 4, updates: 3, ..gate(Rules::EnterAndCheck) });
        assert_sound("five holders, two updates each", Gate { holders: 5, updates: 2, ..gate(Rules::EnterAndCheck) });
    }
}

#[test]
fn a_token_that_is_checked_at_the_write_alone_is_found() {
    assert_found("checked at the write alone", KEPT, gate(Rules::CheckAtWriteAlone));
    assert_found("entered after the read", KEPT, gate(Rules::EnterAfterRead));
}

#[test]
fn a_write_without_its_token_is_found() {
    assert_found("entered, not checked at the write", KEPT, gate(Rules::EnterAlone));
    assert_found("entered, not checked at the write", REFUSED, gate(Rules::EnterAlone));
}

#[test]
fn a_check_that_is_a_step_of_its_own_is_found() {
    assert_found("checked, then written", KEPT, gate(Rules::CheckThenWrite));
    assert_found("checked, then written", REFUSED, gate(Rules::CheckThenWrite));
}

#[test]
fn a_smaller_token_that_enters_is_found() {
    assert_found("a smaller token enters", REFUSED, gate(Rules::EnterLowers));
}
