//! Protocols as state machines, whose every interleaving within small bounds is looked at.
//!
//! Each model has variants with one flaw, which must be found: a model that finds
//! nothing wrong with them would say nothing for ours. (The model of the quorum's
//! tokens stands beside Redlock.) `FENCELOCK_MODELS=large` looks at larger bounds,
//! for which an optimised build is wanted.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    reason = "a test"
)]

mod deadline;
mod gate;

use stateright::{Checker, Expectation, HasDiscoveries, Model};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::hash::Hash;
use std::time::{Duration, Instant};

fn large() -> bool {
    std::env::var("FENCELOCK_MODELS").is_ok_and(|bounds| bounds == "large")
}

/// For one model.
fn limit() -> Duration {
    Duration::from_secs(if large() { 1_800 } else { 120 })
}

/// Looks at every state: no property may break, and what must happen sometimes does.
fn assert_sound<M>(what: &str, model: M)
where
    M: Model + Send + Sync + 'static,
    M::State: Debug + Hash + Send + Sync + Clone + PartialEq + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    let properties = model.properties();
    let begun = Instant::now();
    let checker =
        model.checker().threads(2).timeout(limit()).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    println!("{what}: {} states in {:.1?}", checker.unique_state_count(), begun.elapsed());
    for property in properties {
        let found = checker.discovery(property.name).map(|path| path.into_actions());
        match property.expectation {
            Expectation::Sometimes => assert!(found.is_some(), "{what}: never {}", property.name),
            _ => assert!(found.is_none(), "{what}: not {}: {found:#?}", property.name),
        }
    }
    assert!(checker.is_done() && begun.elapsed() < limit(), "{what}: not all states were looked at in time");
}

/// The property must be broken, and a short way there is printed.
fn assert_found<M>(what: &str, property: &'static str, model: M)
where
    M: Model + Send + Sync + 'static,
    M::State: Debug + Hash + Send + Sync + Clone + PartialEq + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    let begun = Instant::now();
    let wanted = HasDiscoveries::AnyOf(BTreeSet::from([property]));
    let checker = model.checker().threads(2).timeout(limit()).finish_when(wanted).spawn_bfs().join();
    let path = checker.discovery(property).map(|path| path.into_actions());
    println!("{what}: {} states in {:.1?}", checker.unique_state_count(), begun.elapsed());
    println!("  {path:?}");
    assert!(path.is_some(), "{what}: nothing was found that breaks \"{property}\"");
}

/// The properties that do not hold.
fn broken<M>(model: M) -> BTreeSet<&'static str>
where
    M: Model + Send + Sync + 'static,
    M::State: Debug + Hash + Send + Sync + Clone + PartialEq + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    let properties = model.properties();
    let begun = Instant::now();
    let checker =
        model.checker().threads(2).timeout(limit()).finish_when(HasDiscoveries::AllFailures).spawn_bfs().join();
    assert!(begun.elapsed() < limit(), "not all states were looked at in time");
    let always = properties.iter().filter(|property| matches!(property.expectation, Expectation::Always));
    always.map(|property| property.name).filter(|name| checker.discovery(name).is_some()).collect()
}
