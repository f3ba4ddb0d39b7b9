//! What a deployment promises under a fault, from its own words: what is expected
//! of it is not written by hand.

use crate::experiment::Asked;
use crate::fault::Fault;
use fencelock::{Assumption, Guarantees, Level};
use fencelock_testkit::history::Property::{self, E1, E2, G1, G2, K1, K2, L1, R1};

/// What must hold under all of these faults if what the deployment says of itself is true.
pub(crate) fn promised(found: &Guarantees, faults: &[Fault]) -> Vec<Asked> {
    let Some(level) = found.level() else { return Vec::new() };
    let leans = |on| found.assumptions().any(|assumption| assumption == on);
    let mut each = faults.iter().map(|fault| promised_by(level, &leans, *fault));
    let mut all = each.next().unwrap_or_default();
    for some in each {
        all.retain(|asked| some.contains(asked));
    }
    all
}

/// What a level promises under one fault, where it leans on these assumptions.
pub(crate) fn promised_by(level: Level, leans: &dyn Fn(Assumption) -> bool, fault: Fault) -> Vec<Asked> {
    let properties = match withstood_from(fault) {
        Needs::Level(least) if level >= least => of_level(level),
        Needs::Clock(clock) if !leans(clock) && level >= Level::Leased => of_level(level),
        // Tokens are good whatever the clocks do.
        Needs::Clock(_) if level >= Level::Fenced => &[K1, K2, G1, G2],
        _ => &[],
    };
    let is_away = matches!(fault, Fault::LeaderKilled | Fault::LeaderIsolated | Fault::LeaderStopped);
    let up = (level >= Level::Replicated && is_away).then_some(Asked::StaysUp);
    properties.iter().copied().map(Asked::Of).chain(up).collect()
}

/// What a level promises under what it withstands.
pub(crate) const fn of_level(level: Level) -> &'static [Property] {
    match level {
        Level::Advisory => &[E1, R1, L1],
        Level::Leased => &[E1, R1, L1, E2],
        _ => &[E1, R1, L1, E2, K1, K2, G1, G2],
    }
}

/// Whether no waiter loses its place by it, so that whoever promises an order keeps it.
pub(crate) const fn is_in_order(fault: Fault) -> bool {
    matches!(fault, Fault::None | Fault::HolderKilled)
}

/// What it takes to withstand a fault.
enum Needs {
    /// A level.
    Level(Level),
    /// Not to lean on this clock.
    Clock(Assumption),
    /// Nothing that any level promises: the server has lost what it acknowledged (T4).
    Nothing,
}

fn withstood_from(fault: Fault) -> Needs {
    match fault {
        Fault::None
        | Fault::HolderKilled
        | Fault::HolderCut
        | Fault::RepliesDropped
        | Fault::RepliesLate
        | Fault::RequestsDelayed
        | Fault::RequestsTwice
        | Fault::VotesSplit
        | Fault::ServersStopped => Needs::Level(Level::Advisory),
        Fault::HolderStoppedShort | Fault::HolderStoppedLong | Fault::ServerRestarted | Fault::FollowerCut => {
            Needs::Level(Level::Leased)
        }
        Fault::LeaderKilled | Fault::LeaderIsolated | Fault::LeaderStopped | Fault::FailedOver => {
            Needs::Level(Level::Replicated)
        }
        Fault::ClockForward | Fault::ClockBack => Needs::Clock(Assumption::ServerClock),
        Fault::ClockFast => Needs::Clock(Assumption::ClockRates),
        Fault::ServerWiped | Fault::Evicted | Fault::Flushed | Fault::ReplacedAtOnce | Fault::ReplacedAfterDelay => {
            Needs::Nothing
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock::{Liveness, Rule, Scope};

    fn found(level: Level) -> Guarantees {
        let found = Guarantees::of("mine", "one node", Scope::Network, Liveness::Lease)
            .with_assumption(Assumption::ServerMemory)
            .with_assumption(Assumption::ServerClock);
        Level::ALL
            .into_iter()
            .filter(|of| *of <= level)
            .fold(found, |found, of| found.with_rule(Rule::new("mine.proof", of).proved("seen")))
    }

    fn ids(level: Level, fault: Fault) -> Vec<&'static str> {
        promised(&found(level), &[fault]).into_iter().map(Asked::id).collect()
    }

    #[test]
    fn each_level_promises_what_it_withstands_and_nothing_else() {
        assert_eq!(ids(Level::Advisory, Fault::HolderKilled), ["E1", "R1", "L1"]);
        assert!(ids(Level::Advisory, Fault::HolderStoppedLong).is_empty());
        assert_eq!(ids(Level::Leased, Fault::HolderStoppedLong), ["E1", "R1", "L1", "E2"]);
        assert_eq!(ids(Level::Fenced, Fault::ServerRestarted).len(), 8);
        assert!(ids(Level::Fenced, Fault::FailedOver).is_empty());
        assert_eq!(ids(Level::Replicated, Fault::FailedOver).len(), 8);
        assert!(ids(Level::Replicated, Fault::ServerWiped).is_empty());
        assert!(ids(Level::Replicated, Fault::LeaderKilled).contains(&"UP"), "the service stays up");
    }

    #[test]
    fn a_mixture_promises_what_each_of_its_faults_leaves() {
        let mixed = promised(&found(Level::Fenced), &[Fault::HolderKilled, Fault::ClockForward]);
        assert_eq!(mixed, [K1, K2, G1, G2].map(Asked::Of));
    }

    #[test]
    fn tokens_are_good_whatever_a_clock_does_that_the_locks_lean_on() {
        assert_eq!(ids(Level::Fenced, Fault::ClockForward), ["K1", "K2", "G1", "G2"]);
        assert!(ids(Level::Leased, Fault::ClockBack).is_empty());
        assert_eq!(ids(Level::Fenced, Fault::ClockFast).len(), 8, "it does not lean on the rate");
    }
}
