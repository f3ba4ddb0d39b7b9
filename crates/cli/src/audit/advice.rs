//! A good ttl, by the holds in logs.

use super::read::{Hold, Logs};
use fencelock::{Advice, LockName, prefix_of};
use std::collections::BTreeMap;
use std::time::Duration;

/// So many that wait on average make a name hot.
const HOT: u64 = 8;

pub(super) struct PrefixAdvice {
    pub(super) prefix: String,
    pub(super) advice: Advice,
}

/// For each prefix of names, by prefix.
pub(super) fn by_prefix(logs: &Logs, slowest: Duration) -> Vec<PrefixAdvice> {
    let mut prefixes: BTreeMap<&str, Vec<&Hold>> = BTreeMap::new();
    for hold in &logs.holds {
        prefixes.entry(prefix_of(&hold.name)).or_default().push(hold);
    }
    let advise = |(prefix, holds): (&str, Vec<&Hold>)| {
        let held = holds.iter().filter_map(|hold| hold.held_us).map(Duration::from_micros);
        let ttls = holds.iter().filter_map(|hold| hold.ttl_ms).map(Duration::from_millis);
        let advice = Advice::from_holds(held, ttls).above(slowest).with_hot_names(hot(&holds));
        PrefixAdvice { prefix: prefix.to_owned(), advice }
    };
    prefixes.into_iter().map(advise).collect()
}

/// Names for which many waited on average, over the time in which they were held at all.
fn hot(holds: &[&Hold]) -> Vec<(LockName, u64)> {
    let mut names: BTreeMap<&str, (i64, i64, u64)> = BTreeMap::new();
    for hold in holds {
        let asked = hold.granted.saturating_sub(i64::try_from(hold.waited_us).unwrap_or(i64::MAX));
        let times = names.entry(&hold.name).or_insert((asked, hold.end, 0));
        *times = (times.0.min(asked), times.1.max(hold.end), times.2.saturating_add(hold.waited_us));
    }
    let average =
        |(from, until, waited): (i64, i64, u64)| waited / u64::try_from(until.saturating_sub(from)).unwrap_or(1).max(1);
    let hot = names.into_iter().map(|(name, times)| (name, average(times))).filter(|(_, waiting)| *waiting >= HOT);
    hot.filter_map(|(name, waiting)| Some((LockName::new(name).ok()?, waiting))).collect()
}
