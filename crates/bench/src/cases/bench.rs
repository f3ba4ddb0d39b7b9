//! What every case is given, and the rounds in turn that most are made of.

use crate::contender::{Entrant, Shape, entrants, is_elsewhere};
use crate::engine::Engine;
use crate::failure::Failure;
use crate::measure::Rounds;
use crate::row::Row;
use crate::server::{Place, Server};
use std::time::Duration;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) quick: bool,
    pub(crate) pinned: bool,
}

impl Plan {
    /// At least 7, so that a median means something.
    pub(crate) fn rounds(self) -> usize {
        if self.quick { 7 } else { 9 }
    }

    pub(crate) fn round(self) -> Duration {
        Duration::from_millis(if self.quick { 30 } else { 250 })
    }

    /// Whether this contender takes part where runtimes take longer to start, and to be fair, than all else.
    pub(crate) fn has_time_for(self, who: &str) -> bool {
        !self.quick || !is_elsewhere(who)
    }

    /// One of two lengths.
    pub(crate) fn either<T>(self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }
}

/// One engine, on a server that runs.
pub(crate) struct Bench {
    pub(crate) engine: Engine,
    pub(crate) server: Server,
    pub(crate) place: Place,
    pub(crate) plan: Plan,
    /// Takes each row as soon as it is known.
    pub(crate) tell: Box<dyn FnMut(Row) + Send + Sync>,
}

impl Bench {
    pub(crate) fn row(&self, case: &str, who: &str) -> Row {
        Row {
            case: case.to_owned(),
            engine: self.engine.name().to_owned(),
            who: who.to_owned(),
            pinned: self.plan.pinned,
            ..Row::default()
        }
    }

    /// What could not be measured is told, and the rest goes on.
    pub(crate) fn not_measured(&mut self, case: &str, who: &str, why: &Failure) {
        let row = Row { not_measured: Some(why.to_string()), ..self.row(case, who) };
        (self.tell)(row);
    }

    /// The row of a contender's rounds beside the floor's.
    pub(crate) fn row_of(&self, case: &str, who: &str, rounds: &Rounds, floor: Option<&Rounds>) -> Row {
        Row {
            ops_per_s: rounds.rate(),
            p50_us: rounds.quantile_us(0.5),
            p99_us: rounds.quantile_us(0.99),
            ratio_to_floor: floor.and_then(|floor| rounds.ratio_to(floor)),
            rounds: rounds.count(),
            client_cpu_us: rounds.client_us(),
            server_cpu_us: rounds.server_us(),
            commands: rounds.commands(),
            evenness: rounds.evenness(),
            ..self.row(case, who)
        }
    }

    /// All contenders of the engine, or those of them that can take part.
    pub(crate) async fn enter(&mut self, case: &str, shape: Shape, wanted: impl Fn(&str) -> bool) -> Vec<Entrant> {
        let mut entered = Vec::new();
        for who in entrants(self.engine).into_iter().filter(|who| wanted(who)) {
            match Entrant::enter(who, &self.place, shape, case).await {
                Ok(entrant) => entered.push(entrant),
                Err(why) => self.not_measured(case, who, &why),
            }
        }
        entered
    }

    /// Rounds of each in turn, A B C A B C …; who fails is told of and left out of the rest.
    pub(crate) async fn rounds(
        &mut self,
        case: &str,
        entrants: &mut Vec<Entrant>,
        length: Duration,
        counted: bool,
    ) -> Vec<(String, Rounds)> {
        let mut all: Vec<(String, Rounds)> =
            entrants.iter().map(|entrant| (entrant.who.clone(), Rounds::default())).collect();
        for _ in 0..self.plan.rounds() {
            let mut failed = Vec::new();
            for entrant in entrants.iter_mut() {
                match entrant.round(&self.server, length, counted).await {
                    Ok(round) => all
                        .iter_mut()
                        .filter(|(who, _)| *who == entrant.who)
                        .for_each(|(_, rounds)| rounds.push(round.clone())),
                    Err(why) => failed.push((entrant.who.clone(), why)),
                }
            }
            for (who, why) in failed {
                entrants.retain(|entrant| entrant.who != who);
                all.retain(|(other, _)| *other != who);
                self.not_measured(case, &who, &why);
            }
        }
        all
    }

    /// Tells the rows of all, with the ratio to `floor`.
    pub(crate) fn tell_all(&mut self, case: &str, all: &[(String, Rounds)], floor: Option<&Rounds>) {
        for (who, rounds) in all {
            let row = self.row_of(case, who, rounds, floor);
            (self.tell)(row);
        }
    }
}

/// The floor's rounds among all.
pub(crate) fn floor(all: &[(String, Rounds)]) -> Option<&Rounds> {
    all.iter().find(|(who, _)| who == "floor").map(|(_, rounds)| rounds)
}
