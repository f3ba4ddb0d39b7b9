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
    /// The places with the shortest spans of all, shortest first, up to [`Verdict::KEPT`].
    pub findings: Vec<Finding>,
}

impl Verdict {
    /// How many findings are kept.
    pub const KEPT: usize = 20;

    pub(super) fn new(property: Property) -> Self {
        Self { property, asked: 0, broken: 0, findings: Vec::new() }
    }

    /// A place that spans `span`; it is put into words only if it is among the shortest so far.
    pub(super) fn found(&mut self, span: (u64, u64), finding: impl FnOnce() -> Finding) {
        self.broken += 1;
        let at = self.findings.partition_point(|kept| length(kept.span) <= length(span));
        if at < Self::KEPT {
            self.findings.insert(at, finding());
            self.findings.truncate(Self::KEPT);
        }
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

/// What has no span of its own shows least.
fn length((from, to): (u64, u64)) -> u64 {
    if (from, to) == (0, 0) { u64::MAX } else { to.saturating_sub(from) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_of_all_are_kept() {
        let mut verdict = Verdict::new(Property::E1);
        let lengths = (0..200_u64).map(|at| 1 + at * 77 % 199);
        for (at, long) in lengths.clone().enumerate() {
            let from = at as u64 * 1_000;
            let (subject, message) = (String::new(), String::new());
            let span = (from, from + long);
            verdict.found(span, || Finding { subject, message, holds: Vec::new(), span });
        }
        verdict.found((0, 0), || unreachable!("it shows less than all that are kept"));
        let mut all: Vec<_> = lengths.collect();
        all.sort_unstable();
        let kept: Vec<_> = verdict.findings.iter().map(|found| found.span.1 - found.span.0).collect();
        assert_eq!(kept, all[..Verdict::KEPT]);
        assert_eq!(verdict.broken, 201);
    }
}
