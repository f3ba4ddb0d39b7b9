//! How long the checker takes: `cargo bench -p fencelock-testkit`.

#![allow(clippy::print_stdout, clippy::indexing_slicing, reason = "no library code")]

use fencelock_testkit::history::check::{Limits, check};
use fencelock_testkit::history::{Event, GateAnswer, ReleaseAnswer, What};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A clean history: workers take turns at some locks and raise a counter each time.
fn clean(events: usize) -> Vec<Event> {
    let locks: Vec<Arc<str>> = (0..16).map(|at| format!("lock/{at}").into()).collect();
    let counters: Vec<Arc<str>> = (0..16).map(|at| format!("counter/{at}").into()).collect();
    let mut out = Vec::with_capacity(events + 16);
    let (mut now, mut hold) = (0, 0);
    let mut values = [0; 16];
    while out.len() < events {
        hold += 1;
        let at = hold as usize % 16;
        values[at] += 1;
        let (worker, value, answer) = (hold % 8 + 1, values[at], GateAnswer::Accepted);
        let resource = || Arc::clone(&counters[at]);
        let asked = now + 5_000;
        let mut push = |what| {
            now += 1_000;
            out.push(Event { at: now, worker, hold, what });
        };
        push(What::Acquire { lock: Arc::clone(&locks[at]) });
        push(What::Granted { token: u64::from(hold) });
        push(What::Enter { resource: resource() });
        push(What::Entered { resource: resource(), answer });
        push(What::Believed { asked, deadline: u64::MAX });
        push(What::Write { resource: resource(), value });
        push(What::Wrote { resource: resource(), value, answer });
        push(What::Release);
        push(What::Released { answer: ReleaseAnswer::Freed });
    }
    for (value, counter) in values.into_iter().zip(counters) {
        out.push(Event { at: now, worker: 0, hold: 0, what: What::FinalCount { resource: counter, value } });
    }
    out
}

fn main() {
    for events in [10_000, 100_000, 1_000_000] {
        let history = clean(events);
        let started = Instant::now();
        let verdicts = check(&history, Limits::new(Duration::from_secs(5)));
        let took = started.elapsed();
        let broken: Vec<_> = verdicts.broken().map(|verdict| verdict.property.id()).collect();
        assert!(broken.is_empty(), "a clean history breaks {broken:?}: {verdicts}");
        println!("{events:>9} events: {took:.1?}, {:.0} ns each", took.as_nanos() as f64 / history.len() as f64);
    }
}
