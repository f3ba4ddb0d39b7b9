//! What is tried: an engine in a deployment, under a fault, and what is expected of it.

use crate::fault::Fault;
use crate::worker::{Guarded, Work};
use fencelock_lab::Failure;
use fencelock_testkit::history::Property;
use std::fmt;
use std::time::Duration;

/// Servers as they run, and how they are hurt.
pub(crate) trait Deployment {
    /// Where a worker connects to; a deployment may give each worker a way of its own.
    fn url(&mut self, worker: u32) -> Result<String, Failure>;

    /// Rules that the workers attest.
    fn attest(&self) -> Vec<String> {
        Vec::new()
    }

    /// Begins the fault; those at a holder are done to `worker`.
    fn hurt(&mut self, fault: Fault, worker: u32) -> Result<(), Failure>;

    /// Ends it.
    fn mend(&mut self, fault: Fault, worker: u32) -> Result<(), Failure>;
}

/// A promise that is asked for, of all that is guarded or of one way of guarding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Asked {
    Of(Property),
    /// Updates to a counter that nothing guards but the lock.
    OpenUpdates,
    /// Updates to a counter whose gate is not entered before the read: the token is checked at the write alone.
    WriteOnlyUpdates,
    /// While a server is away, somebody is served.
    StaysUp,
}

impl Asked {
    pub(crate) const fn id(self) -> &'static str {
        match self {
            Self::Of(property) => property.id(),
            Self::OpenUpdates => "G2 without a gate",
            Self::WriteOnlyUpdates => "G2 checked at the write only",
            Self::StaysUp => "UP",
        }
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.id())
    }
}

/// Whom a fault at a worker is done to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Victim {
    Holder,
    /// One who waits for the lock.
    Waiter,
}

/// One cell of the matrix.
#[derive(Clone, Debug)]
pub(crate) struct Experiment {
    pub(crate) engine: &'static str,
    pub(crate) deployment: &'static str,
    pub(crate) fault: Fault,
    /// Each round does another of these instead, by the seed.
    pub(crate) mixed: Vec<Fault>,
    pub(crate) victim: Victim,
    /// It does not do what it promises, and the lab has to find it.
    pub(crate) wrong: bool,
    /// What is special about it, where the same fault is tried in several ways.
    pub(crate) variant: &'static str,
    /// What must hold, and what must break; of the rest only what was seen is told.
    pub(crate) holds: Vec<Asked>,
    pub(crate) breaks: Vec<Asked>,
    /// Part of the quick run.
    pub(crate) quick: bool,
    pub(crate) start: fn() -> Result<Box<dyn Deployment>, Failure>,
    pub(crate) ttl: Duration,
    pub(crate) workers: u32,
    pub(crate) work: Work,
    /// How often the fault is done, how long it lasts, and how long the rest between is.
    pub(crate) rounds: u32,
    pub(crate) lasts: Duration,
    pub(crate) rest: Duration,
    /// A holder is hit between its look and its write at these resources in turn, if that is seen.
    pub(crate) aim: &'static [&'static str],
    /// Fewer hits show nothing.
    pub(crate) least_hits: u32,
    /// How long a free lock may stay unserved where nothing is broken.
    pub(crate) served_within: Duration,
}

impl Experiment {
    /// An experiment with four workers at one lock, which expects nothing yet.
    pub(crate) fn new(
        engine: &'static str,
        deployment: &'static str,
        fault: Fault,
        start: fn() -> Result<Box<dyn Deployment>, Failure>,
    ) -> Self {
        let ttl = Duration::from_secs(1);
        Self {
            engine,
            deployment,
            fault,
            mixed: Vec::new(),
            victim: Victim::Holder,
            wrong: false,
            variant: "",
            holds: Vec::new(),
            breaks: Vec::new(),
            quick: false,
            start,
            ttl,
            workers: 4,
            work: Work::default(),
            rounds: 4,
            lasts: lasting(fault, ttl),
            rest: ttl * 2,
            aim: &[],
            least_hits: 2,
            served_within: serving(ttl),
        }
    }

    /// Part of the quick run.
    pub(crate) fn quick(mut self) -> Self {
        self.quick = true;
        self
    }

    /// What must hold.
    pub(crate) fn holds(mut self, asked: impl IntoIterator<Item = Asked>) -> Self {
        self.holds.extend(asked);
        self
    }

    /// What must break.
    pub(crate) fn breaks(mut self, asked: impl IntoIterator<Item = Asked>) -> Self {
        self.breaks.extend(asked);
        self
    }

    /// Another ttl, and everything that follows from it.
    pub(crate) fn with_ttl(mut self, ttl: Duration) -> Self {
        (self.ttl, self.lasts, self.rest, self.served_within) = (ttl, lasting(self.fault, ttl), ttl * 2, serving(ttl));
        self
    }

    pub(crate) fn with_rounds(mut self, rounds: u32, least_hits: u32) -> Self {
        (self.rounds, self.least_hits) = (rounds, least_hits);
        self
    }

    pub(crate) fn with_workers(mut self, workers: u32) -> Self {
        self.workers = workers;
        self
    }

    pub(crate) fn with_times(mut self, lasts: Duration, rest: Duration) -> Self {
        (self.lasts, self.rest) = (lasts, rest);
        self
    }

    pub(crate) fn with_work(mut self, work: Work) -> Self {
        self.work = work;
        self
    }

    /// The fault is done to one who waits, where it is one at a worker.
    pub(crate) fn at_a_waiter(mut self) -> Self {
        self.victim = Victim::Waiter;
        self
    }

    /// It does not do what it promises, and the lab has to find it.
    pub(crate) fn wrong_on_purpose(mut self) -> Self {
        self.wrong = true;
        self
    }

    /// All of these, in an order that the seed decides.
    pub(crate) fn with_mixed(mut self, faults: impl IntoIterator<Item = Fault>) -> Self {
        self.mixed = faults.into_iter().collect();
        self
    }

    /// All faults that it may do.
    pub(crate) fn faults(&self) -> Vec<Fault> {
        if self.mixed.is_empty() { vec![self.fault] } else { self.mixed.clone() }
    }

    /// As in reports and on the command line.
    pub(crate) fn fault_id(&self) -> String {
        match (self.mixed.is_empty(), self.victim) {
            (false, _) => "mixed".to_owned(),
            (true, Victim::Holder) => self.fault.id().to_owned(),
            (true, Victim::Waiter) => self.fault.id().replacen("holder", "waiter", 1),
        }
    }

    /// How long a fault of a mixture lasts; the others last as long as they say.
    pub(crate) fn lasting(&self, fault: Fault) -> Duration {
        if self.mixed.is_empty() { self.lasts } else { lasting(fault, self.ttl) }
    }

    /// What is special about it.
    pub(crate) fn called(mut self, variant: &'static str) -> Self {
        self.variant = variant;
        self
    }

    pub(crate) fn with_served_within(mut self, limit: Duration) -> Self {
        self.served_within = limit;
        self
    }

    /// How long it takes, roughly.
    pub(crate) fn about(&self) -> Duration {
        (self.lasts + self.rest * 5 / 4) * self.rounds + self.served_within * (self.rounds / 3 + 1)
    }

    /// The name it is chosen by.
    pub(crate) fn id(&self) -> String {
        let variant = if self.variant.is_empty() { String::new() } else { format!(" ({})", self.variant) };
        format!("{}/{}/{}{variant}", self.engine, self.deployment, self.fault_id())
    }
}

/// A holder may have been killed just before the end of a fault: its ttl, a second
/// for the service to notice, and far more for a machine with other work.
fn serving(ttl: Duration) -> Duration {
    ttl * 2 + Duration::from_secs(4)
}

fn lasting(fault: Fault, ttl: Duration) -> Duration {
    match fault {
        Fault::HolderStoppedShort => ttl / 2,
        Fault::HolderKilled => ttl / 10,
        fault if fault.is_at_once() => Duration::ZERO,
        _ => ttl * 2,
    }
}

/// What `Leased` promises. Not L1: the rests between faults are shorter than the
/// time in which a waiter has to be served, so that nothing could break it.
pub(crate) fn leased() -> Vec<Asked> {
    [Property::E1, Property::E2, Property::R1].map(Asked::Of).to_vec()
}

/// What a fencing token and a gate promise by themselves; of stale writes only [`stale`] says something.
pub(crate) fn gated() -> Vec<Asked> {
    [Property::K1, Property::K2, Property::G2].map(Asked::Of).to_vec()
}

/// Nothing stale is accepted: where the fault makes stale writers.
pub(crate) fn stale() -> Vec<Asked> {
    vec![Asked::Of(Property::G1)]
}

/// What `Fenced` promises where the clocks are right too.
pub(crate) fn fenced() -> Vec<Asked> {
    leased().into_iter().chain(gated()).collect()
}

/// A holder is stopped beyond its ttl between its look and its write: what is
/// behind the gate is safe, and what is guarded by the lock alone is lost.
pub(crate) fn paused(experiment: Experiment) -> Experiment {
    let (ttl, work) = (experiment.ttl, Work { hold: (0, 5), long: 0, rest: 2, think: 60, ..Work::default() });
    let experiment = experiment.holds(stale()).breaks([Asked::OpenUpdates]).with_work(work).with_rounds(5, 2);
    Experiment { aim: &["open", "gated"], ..experiment.with_times(ttl * 5 / 2, ttl / 2) }
}

/// The same where the token is checked at the write alone.
pub(crate) fn paused_write_only(experiment: Experiment) -> Experiment {
    let ttl = experiment.ttl;
    let think = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX) / 2;
    let work = Work { only: Some(Guarded::WriteOnly), hold: (0, 1), long: 0, rest: 1, think, ..Work::default() };
    let experiment = experiment.called("checked at the write only").breaks([Asked::WriteOnlyUpdates]);
    let experiment = experiment.with_work(work).with_rounds(8, 3);
    // It goes on while the next holder is still between its read and its write.
    let experiment = experiment.with_times(ttl * 6 / 5, ttl / 2);
    Experiment { aim: &["write only"], ..experiment }
}
