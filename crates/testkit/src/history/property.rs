//! What a history is asked, and what it answers.

use std::fmt;

/// A promise that a history keeps or breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Property {
    /// Must-hold intervals of one lock are disjoint: from when acquire returned to
    /// the call of the last `is_held()` that said true, or of release.
    E1,
    /// Loss is final; nobody believes after the deadline, nor after the next grant.
    E2,
    /// Tokens of one lock are unique.
    K1,
    /// Tokens of one lock grow in real time.
    K2,
    /// At a fenced resource nothing is accepted after a larger token has entered.
    G1,
    /// No acknowledged update is lost.
    G2,
    /// Only the owner releases.
    R1,
    /// Where nothing is broken and nobody holds, a waiter is served in time.
    L1,
    /// Waiters are served in the order in which they came.
    Fifo,
}

impl Property {
    /// All of them.
    pub const ALL: [Self; 9] =
        [Self::E1, Self::E2, Self::K1, Self::K2, Self::G1, Self::G2, Self::R1, Self::L1, Self::Fifo];

    /// As in reports: `E1` to `L1`, `FIFO`.
    #[must_use]
    pub const fn id(self) -> &'static str {
        match self {
            Self::E1 => "E1",
            Self::E2 => "E2",
            Self::K1 => "K1",
            Self::K2 => "K2",
            Self::G1 => "G1",
            Self::G2 => "G2",
            Self::R1 => "R1",
            Self::L1 => "L1",
            Self::Fifo => "FIFO",
        }
    }
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.id())
    }
}

/// A place in which a history breaks a promise.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The lock, or the resource.
    pub subject: String,
    /// What is wrong, in words.
    pub message: String,
    /// Whose holds are at odds, as (worker, hold), the earlier first.
    pub holds: Vec<(u32, u32)>,
    /// The span in which it happened, in nanoseconds.
    pub span: (u64, u64),
}

/// What a history says about one promise.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verdict {
    /// Of what.
    pub property: Property,
    /// How many things could have broken it. Of nothing, nothing is shown.
    pub asked: u64,
    /// How often it is broken.
    pub broken: u64,
    /// The first places, by time, up to [`Verdict::KEPT`]; the one with the shortest span is first.
    pub findings: Vec<Finding>,
}

impl Verdict {
    /// How many findings are kept.
    pub const KEPT: usize = 20;

    pub(super) fn new(property: Property) -> Self {
        Self { property, asked: 0, broken: 0, findings: Vec::new() }
    }

    pub(super) fn found(&mut self, finding: impl FnOnce() -> Finding) {
        self.broken += 1;
        if self.findings.len() < Self::KEPT {
            self.findings.push(finding());
        }
    }

    pub(super) fn shortest_first(mut self) -> Self {
        self.findings.sort_by_key(|found| found.span.1.saturating_sub(found.span.0));
        self
    }

    /// Asked at least once, and never broken.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.asked > 0 && self.broken == 0
    }

    /// Broken at least once.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.broken > 0
    }
}

/// What a history says about every promise.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verdicts {
    /// One each, in the order of [`Property::ALL`].
    pub all: Vec<Verdict>,
}

impl Verdicts {
    /// What it says about `property`.
    #[must_use]
    pub fn of(&self, property: Property) -> Option<&Verdict> {
        self.all.iter().find(|verdict| verdict.property == property)
    }

    /// Whether `property` is broken.
    #[must_use]
    pub fn breaks(&self, property: Property) -> bool {
        self.of(property).is_some_and(Verdict::is_broken)
    }

    /// The promises that are broken.
    pub fn broken(&self) -> impl Iterator<Item = &Verdict> + '_ {
        self.all.iter().filter(|verdict| verdict.is_broken())
    }
}

impl fmt::Display for Verdicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for verdict in &self.all {
            writeln!(f, "{:<4} asked {} broken {}", verdict.property, verdict.asked, verdict.broken)?;
            for found in &verdict.findings {
                writeln!(f, "     {}: {}", found.subject, found.message)?;
            }
        }
        Ok(())
    }
}
