//! How long the holds of one client took, by the prefix of their names.

use super::histogram::Histogram;
use crate::LockName;
use crate::advice::{Advice, prefix_of};
use std::collections::BTreeMap;
use std::time::Duration;

/// The most prefixes that are told apart; those beyond are one.
const PREFIXES: usize = 128;

#[derive(Debug, Default)]
pub(super) struct Histories {
    /// Where the history of each prefix stands.
    prefixes: BTreeMap<Box<str>, usize>,
    histories: Vec<History>,
    others: History,
}

#[derive(Clone, Debug, Default)]
struct History {
    holds: Histogram,
    /// The shortest and longest ttl that holds were granted with.
    ttls: Option<(Duration, Duration)>,
}

impl History {
    fn add_ttls(&mut self, (shortest, longest): (Duration, Duration)) {
        self.ttls = Some(self.ttls.map_or((shortest, longest), |(s, l)| (s.min(shortest), l.max(longest))));
    }
}

impl Histories {
    fn at(&mut self, name: &LockName) -> &mut History {
        let prefix = prefix_of(name.as_str());
        let at = match self.prefixes.get(prefix) {
            Some(at) => *at,
            None if self.histories.len() >= PREFIXES => return &mut self.others,
            None => {
                self.histories.push(History::default());
                self.prefixes.insert(prefix.into(), self.histories.len() - 1);
                self.histories.len() - 1
            }
        };
        self.histories.get_mut(at).unwrap_or(&mut self.others)
    }

    pub(super) fn granted(&mut self, name: &LockName, ttl: Duration) {
        self.at(name).add_ttls((ttl, ttl));
    }

    pub(super) fn ended(&mut self, name: &LockName, held: Duration) {
        self.at(name).holds.add(held);
    }

    /// All whose prefix begins so; everything for the empty one.
    pub(super) fn of(&self, prefix: &str) -> Advice {
        let mut whole = if prefix.is_empty() { self.others.clone() } else { History::default() };
        let within = || self.prefixes.iter().filter(|(found, _)| found.starts_with(prefix)).map(|(_, at)| at);
        let own = self.prefixes.get(prefix_of(prefix)).filter(|_| within().next().is_none());
        for history in within().chain(own).filter_map(|at| self.histories.get(*at)) {
            whole.holds.merge(&history.holds);
            if let Some(ttls) = history.ttls {
                whole.add_ttls(ttls);
            }
        }
        Advice::of(&whole.holds, whole.ttls)
    }
}
