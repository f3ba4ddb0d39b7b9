//! The checker: exact, and of order n log n.

mod belief;
mod exclusion;
mod fenced;
mod fifo;
mod live;
mod release;
mod sweep;
mod tokens;

use super::holds::by_lock;
use super::{Event, Property, Verdict, Verdicts};
use std::time::Duration;

/// What the checker has to be told, since no history says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// How long a waiter may wait for a lock that nobody holds, while nothing is
    /// broken: at least ttl + lock delay, since the last holder may have been killed.
    pub served_within: Duration,
    /// Two waiters are in order if the second asked at least this long after the
    /// first, by which time the first surely had its place.
    pub queued_apart: Duration,
    /// A worker that came to nothing and asks again in less than this has been
    /// waiting all the while; zero unless set, so that each acquire is for itself.
    pub asks_again_within: Duration,
}

impl Limits {
    /// Served within `served_within`; in order if they asked 50 ms apart.
    #[must_use]
    pub const fn new(served_within: Duration) -> Self {
        Self { served_within, queued_apart: Duration::from_millis(50), asks_again_within: Duration::ZERO }
    }

    /// Two waiters are in order if they asked this far apart.
    #[must_use]
    pub const fn with_queued_apart(mut self, queued_apart: Duration) -> Self {
        self.queued_apart = queued_apart;
        self
    }

    /// A worker that asks again in less than this has been waiting all the while.
    #[must_use]
    pub const fn with_asks_again_within(mut self, asks_again_within: Duration) -> Self {
        self.asks_again_within = asks_again_within;
        self
    }
}

/// What a history says about every promise. Events come by time, as [`read`](super::read) gives them.
///
/// `FIFO` says something only of engines that promise it; `L1` and `R1` know
/// from [`What::Fault`](super::What::Fault) and [`What::Healed`](super::What::Healed) when the world was broken.
#[must_use]
pub fn check(events: &[Event], limits: Limits) -> Verdicts {
    let locks = by_lock(events);
    let (quiet, healed) = (live::quiet_spans(events), live::healed_spans(events));
    let mut all: Vec<_> = Property::ALL.into_iter().map(Verdict::new).collect();
    let mut on = |property: Property, judge: &mut dyn FnMut(&mut Verdict)| {
        if let Some(verdict) = all.iter_mut().find(|verdict| verdict.property == property) {
            judge(verdict);
        }
    };
    for lock in &locks {
        on(Property::E1, &mut |verdict| exclusion::judge(lock, verdict));
        on(Property::E2, &mut |verdict| belief::judge(lock, verdict));
        on(Property::K1, &mut |verdict| tokens::judge_unique(lock, verdict));
        on(Property::K2, &mut |verdict| tokens::judge_growing(lock, verdict));
        on(Property::R1, &mut |verdict| release::judge(lock, &quiet, verdict));
        on(Property::L1, &mut |verdict| live::judge(lock, &quiet, &healed, limits, verdict));
        on(Property::Fifo, &mut |verdict| fifo::judge(lock, limits, verdict));
    }
    let resources = fenced::by_resource(events, &locks);
    for resource in &resources {
        on(Property::G1, &mut |verdict| fenced::judge_stale(resource, verdict));
        on(Property::G2, &mut |verdict| fenced::judge_lost(resource, verdict));
    }
    Verdicts { all }
}
