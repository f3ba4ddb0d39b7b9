//! All that is tried: what the deployments bring, and on it more ways of working, and mixtures of faults.

use crate::deployments;
use crate::experiment::{Asked, Experiment, fenced};
use crate::fault::Fault;
use crate::worker::{Guarded, Work};
use std::time::Duration;

/// Every experiment, those of a deployment one after the other.
pub(crate) fn experiments() -> Vec<Experiment> {
    let mut all = deployments::experiments();
    let more: Vec<_> = all.iter().filter(|base| is_first(&all, base)).flat_map(|base| more(base, &all)).collect();
    all.extend(more);
    let mut deployments: Vec<_> = all.iter().map(|of| (of.engine, of.deployment)).collect();
    let mut seen = std::collections::HashSet::new();
    deployments.retain(|deployment| seen.insert(*deployment));
    all.sort_by_key(|of| deployments.iter().position(|deployment| *deployment == (of.engine, of.deployment)));
    all
}

/// The first that the deployment brings with the fault, which needs no special circumstances.
fn is_first(all: &[Experiment], base: &Experiment) -> bool {
    let mut same = all.iter().filter(|of| (of.engine, of.deployment) == (base.engine, base.deployment));
    same.next().is_some_and(|first| std::ptr::eq(first, base))
}

fn more(base: &Experiment, all: &[Experiment]) -> Vec<Experiment> {
    let of_it = || all.iter().filter(|of| (of.engine, of.deployment) == (base.engine, base.deployment));
    let breaks = of_it().any(|of| of.breaks.iter().any(|asked| matches!(asked, Asked::Of(_))) && !of.fault.is_a_loss());
    let mut more = Vec::new();
    if !breaks {
        more.extend(mixed(base, of_it()));
    }
    let suffers = |fault| of_it().any(|of| of.fault == fault);
    // How clients work and wait is the same whatever servers there are: one deployment of each engine, without
    // those in which what is promised breaks.
    let first = all.iter().find(|of| of.engine == base.engine && of.fault == Fault::HolderKilled);
    if first.is_some_and(|first| first.deployment == base.deployment) && suffers(Fault::HolderStoppedLong) {
        more.extend(workloads(base, &suffers));
    }
    more
}

/// All that breaks nothing, in an order that the seed decides; what each fault alone must leave, they must together.
fn mixed<'a>(base: &Experiment, of_it: impl Iterator<Item = &'a Experiment>) -> Option<Experiment> {
    let harmless = of_it.filter(|of| !of.breaks.iter().any(|asked| matches!(asked, Asked::Of(_))));
    let harmless: Vec<_> = harmless.filter(|of| of.fault != Fault::None && !of.fault.is_a_loss()).collect();
    let mut faults: Vec<_> = harmless.iter().map(|of| of.fault).collect();
    let mut seen = std::collections::HashSet::new();
    faults.retain(|fault| seen.insert(*fault));
    let left = |asked: &Asked| {
        faults.iter().all(|fault| harmless.iter().any(|of| of.fault == *fault && of.holds.contains(asked)))
    };
    let holds: Vec<_> = fenced().into_iter().filter(left).collect();
    let work = Work { only: None, ..Work::default() };
    let mixed = again(base, Fault::None).with_mixed(faults.iter().copied()).with_work(work).with_rounds(8, 4);
    let mixed = mixed.holds(holds);
    (faults.len() > 2).then_some(mixed)
}

fn workloads(base: &Experiment, suffers: &dyn Fn(Fault) -> bool) -> Vec<Experiment> {
    let of = |fault| again(base, fault).with_rounds(3, 2);
    let many = Work { locks: 24, tasks: 8, long: 10, ..Work::default() };
    let many = of(Fault::HolderKilled).called("many locks of one client").with_work(many).with_workers(3);
    let mut all = vec![many];
    // Those who wait are enough to be hit, and hasty or cancelled among them.
    let waiting = Work { hold: (50, 150), long: 10, rest: 5, cancelled: 15, hasty: 15, ..Work::default() };
    for fault in [Fault::HolderKilled, Fault::HolderStoppedLong, Fault::HolderCut] {
        if suffers(fault) {
            all.push(of(fault).at_a_waiter().with_work(waiting).with_workers(5));
        }
    }
    if matches!(base.engine, "redis" | "postgres") {
        // Tasks that have little to do, so that a lease passes on several times before a fault meets it.
        let only = Some(Guarded::Gated);
        let work = Work { hold: (0, 1), long: 5, rest: 1, think: 1, tasks: 6, cohort: 20, only, ..Work::default() };
        for fault in [Fault::HolderKilled, Fault::HolderStoppedLong] {
            all.push(of(fault).called("a cohort").holds(fenced()).with_work(work).with_workers(3));
        }
    }
    if matches!(base.engine, "etcd" | "zookeeper") {
        let work = Work { hold: (10, 60), only: Some(Guarded::List), dropped: 10, ..waiting };
        all.push(of(Fault::HolderKilled).called("a queue").with_work(work).with_workers(7));
    }
    // A deadline that counts from the answer is too late by as much as the answer, if no renewal comes after it.
    if suffers(Fault::RequestsDelayed) {
        // Two, with rests between their holds: who hears late comes to hold only where nobody else asks.
        let work = Work { long: 100, rest: 600, ..Work::default() };
        all.push(of(Fault::RepliesLate).with_work(work).with_workers(2).with_rounds(9, 3));
    }
    // The requests of a holder come after its lock has run out: renewals and releases too.
    if suffers(Fault::RequestsDelayed) && !matches!(base.engine, "etcd" | "zookeeper") {
        let late = of(Fault::RequestsDelayed).called("later than the ttl").with_ttl(Duration::from_millis(500));
        all.push(late.with_work(Work { long: 60, ..Work::default() }).with_rounds(4, 2));
    }
    all
}

/// The same deployment with nothing expected of it but what it promises.
fn again(base: &Experiment, fault: Fault) -> Experiment {
    let again = Experiment::new(base.engine, base.deployment, fault, base.start).with_ttl(base.ttl);
    let served_within = again.served_within.max(base.served_within);
    again.with_served_within(served_within)
}

/// A service that is never well again: the lab has to find that nobody is served.
pub(crate) fn self_test() -> Vec<Experiment> {
    vec![crate::self_test::experiment()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_experiments_share_a_name() {
        let mut names: Vec<_> = experiments().iter().map(Experiment::id).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn a_mixture_has_to_hold_what_each_of_its_faults_leaves() {
        let all = experiments();
        for engine in ["sqlite", "redis", "redlock", "etcd", "zookeeper", "postgres", "mysql"] {
            let mut mixtures = all.iter().filter(|of| of.engine == engine && !of.mixed.is_empty());
            assert!(mixtures.any(|of| fenced().iter().all(|asked| of.holds.contains(asked))), "{engine}");
        }
    }

    #[test]
    fn every_engine_has_its_workloads_and_a_mixture() {
        let all = experiments();
        for engine in ["sqlite", "redis", "redlock", "etcd", "zookeeper", "postgres", "mysql"] {
            let has = |what: &str| all.iter().any(|of| of.engine == engine && of.id().contains(what));
            for what in ["/mixed", "many locks of one client", "/waiter-killed", "/waiter-stopped-long"] {
                assert!(has(what), "{engine} lacks {what}");
            }
            assert!(engine == "sqlite" || has("/replies-late"), "{engine} has no late answers");
        }
    }
}
