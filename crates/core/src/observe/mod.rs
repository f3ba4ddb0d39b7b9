//! What a client tells of itself: events, measures, and how long its holds take.

mod contention;
pub(crate) mod histogram;
mod history;
#[cfg(feature = "metrics")]
#[path = "metrics.rs"]
mod measures;
#[cfg(not(feature = "metrics"))]
#[path = "no_metrics.rs"]
mod measures;
pub mod schema;

pub(crate) use measures::Counted;

use crate::advice::Advice;
use crate::sync::lock;
use crate::validity::{micros, millis};
use crate::{AcquireOptions, Claim, Ended, Error, FencingToken, LossReason, Moment, Wait};
use contention::Contention;
use history::Histories;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tracing::Span;

/// One client's events, all emitted here, so that they are one [schema].
pub(crate) struct Observer {
    engine: Arc<str>,
    histories: Mutex<Histories>,
    contention: Mutex<Contention>,
}

/// A hold, for those who tell of it.
#[derive(Clone, Copy)]
pub(crate) struct Told<'h> {
    pub(crate) claim: &'h Claim,
    pub(crate) token: FencingToken,
    /// Since when, until now.
    pub(crate) held: Duration,
    /// The time of day, read before all else that is told: whatever is measured
    /// later, and taken off it, leads to a moment that is rather too early than too late.
    at_us: u64,
}

impl<'h> Told<'h> {
    pub(crate) fn now(claim: &'h Claim, token: FencingToken, since: Moment) -> Self {
        let at_us = of_day();
        Self { claim, token, held: claim.now().since(since), at_us }
    }
}

/// A hold that is given back, for those who tell of it.
///
/// Most releases are told to nobody: the time of day and what the release took are read where
/// the event is made, in this order and for the same reason as there.
#[derive(Clone, Copy)]
pub(crate) struct GivenBack<'h> {
    pub(crate) claim: &'h Claim,
    pub(crate) token: FencingToken,
    /// How long it was held: until its release began.
    pub(crate) held: Duration,
    /// When that was.
    pub(crate) began: Moment,
}

impl GivenBack<'_> {
    fn took(&self) -> Duration {
        self.claim.now().since(self.began)
    }
}

/// The time of day, in microseconds since 1970.
fn of_day() -> u64 {
    let of_day = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(of_day.as_micros()).unwrap_or(u64::MAX)
}

impl Observer {
    pub(crate) fn new(engine: Arc<str>) -> Self {
        Self { engine, histories: Mutex::default(), contention: Mutex::default() }
    }

    pub(crate) fn engine(&self) -> &Arc<str> {
        &self.engine
    }

    pub(crate) fn advice(&self, prefix: &str) -> Advice {
        let history = lock(&self.histories).of(prefix);
        history.with_hot_names(lock(&self.contention).hot(prefix))
    }

    /// A call begins to ask for a lock.
    pub(crate) fn asked(&self, claim: &Claim, options: &AcquireOptions, trying: bool) {
        let wait_ms = match options.wait {
            _ if trying => Some(0),
            Wait::AtMost(limit) => Some(millis(limit)),
            Wait::Forever => None,
        };
        tracing::debug!(target: "fencelock", event = "acquire", engine = %self.engine, name = %claim.name(),
            claim = %claim.id(), holder = %claim.holder(), note = claim.note().map(|note| &**note),
            ttl_ms = millis(claim.ttl()), wait_ms, "acquire");
    }

    /// Counts a call as waiting until what is returned is dropped.
    pub(crate) fn waiting(&self) -> Counted {
        measures::waiting(&self.engine)
    }

    /// Counts a lock as held until what is returned is dropped.
    pub(crate) fn held(&self) -> Counted {
        measures::held(&self.engine)
    }

    /// The lock is the caller's since `now`, when it had waited for so long.
    pub(crate) fn granted(&self, (claim, token): (&Claim, FencingToken), ttl: Duration, waited: Duration, now: Moment) {
        tracing::debug!(target: "fencelock", event = "granted", engine = %self.engine, name = %claim.name(),
            claim = %claim.id(), token = token.get(), at_us = of_day(), holder = %claim.holder(), note = claim.note().map(|note| &**note),
            ttl_ms = millis(ttl), waited_us = micros(waited), "granted");
        measures::granted(&self.engine, waited);
        lock(&self.histories).granted(claim.name(), ttl);
        let hot = lock(&self.contention).waited(claim.name(), waited, now);
        if let Some(waiting) = hot {
            tracing::warn!(target: "fencelock", event = "hot_name", engine = %self.engine, name = %claim.name(), waiting,
                "a hot name: so many calls of this client wait for it on average; split it");
        }
    }

    pub(crate) fn renewed(&self, told: Told<'_>, remaining: Duration) {
        let claim = told.claim;
        tracing::debug!(target: "fencelock", parent: span(claim), event = "renewed", engine = %self.engine,
            name = %claim.name(), claim = %claim.id(), token = told.token.get(), at_us = told.at_us, holder = %claim.holder(),
            held_us = micros(told.held), remaining_ms = millis(remaining), "renewed");
        measures::renewed(&self.engine);
    }

    pub(crate) fn jeopardy(&self, told: Told<'_>, remaining: Duration, why: &dyn fmt::Display) {
        let claim = told.claim;
        tracing::warn!(target: "fencelock", parent: span(claim), event = "jeopardy", engine = %self.engine,
            name = %claim.name(), claim = %claim.id(), token = told.token.get(), at_us = told.at_us, holder = %claim.holder(),
            held_us = micros(told.held), remaining_ms = millis(remaining), %why, "hold in jeopardy");
        measures::jeopardy(&self.engine);
    }

    /// The hold has ended by loss, `overdue` ago.
    pub(crate) fn lost(&self, told: Told<'_>, overdue: Duration, reason: LossReason) {
        let (claim, held) = (told.claim, told.held.saturating_sub(overdue));
        tracing::warn!(target: "fencelock", parent: span(claim), event = "lost", engine = %self.engine,
            name = %claim.name(), claim = %claim.id(), token = told.token.get(), at_us = told.at_us, holder = %claim.holder(),
            held_us = micros(held), overdue_us = micros(overdue), reason = reason.as_str(), why = %reason, "lost");
        measures::ended(&self.engine, held, Ended::Lost(reason));
        lock(&self.histories).ended(claim.name(), held);
    }

    /// The release was answered.
    pub(crate) fn released(&self, back: GivenBack<'_>) {
        let (claim, held) = (back.claim, back.held);
        tracing::debug!(target: "fencelock", parent: span(claim), event = "released", engine = %self.engine,
            name = %claim.name(), claim = %claim.id(), token = back.token.get(), at_us = of_day(), holder = %claim.holder(),
            held_us = micros(held), took_us = micros(back.took()), outcome = "released", "released");
        self.given_back(claim, held);
    }

    /// Nobody knows whether the release arrived.
    pub(crate) fn release_unknown(&self, back: GivenBack<'_>) {
        let (claim, held) = (back.claim, back.held);
        tracing::warn!(target: "fencelock", parent: span(claim), event = "released", engine = %self.engine,
            name = %claim.name(), claim = %claim.id(), token = back.token.get(), at_us = of_day(), holder = %claim.holder(),
            held_us = micros(held), took_us = micros(back.took()), outcome = "unknown", "released, and not answered");
        self.given_back(claim, held);
    }

    fn given_back(&self, claim: &Claim, held: Duration) {
        measures::ended(&self.engine, held, Ended::Released);
        lock(&self.histories).ended(claim.name(), held);
    }

    /// Somebody released what was no longer theirs.
    pub(crate) fn stale_release(&self, told: Told<'_>, reason: LossReason) {
        let claim = told.claim;
        tracing::warn!(target: "fencelock", parent: span(claim), event = "stale_release", engine = %self.engine,
            name = %claim.name(), claim = %claim.id(), token = told.token.get(), at_us = told.at_us, holder = %claim.holder(),
            reason = reason.as_str(), "released what had been lost");
        measures::stale_release(&self.engine);
    }

    pub(crate) fn long_hold(&self, told: Told<'_>, limit: &'static str) {
        let claim = told.claim;
        tracing::warn!(target: "fencelock", parent: span(claim), event = "long_hold", engine = %self.engine,
            name = %claim.name(), claim = %claim.id(), token = told.token.get(), at_us = told.at_us, holder = %claim.holder(),
            held_us = micros(told.held), limit,
            "a long hold: over half of max_hold, or over 80 % of a fixed lease, is used");
    }

    pub(crate) fn contended_here(&self, claim: &Claim, waited: Duration) {
        tracing::warn!(target: "fencelock", event = "contended_here", engine = %self.engine, name = %claim.name(),
            claim = %claim.id(), holder = %claim.holder(), waited_us = micros(waited),
            "this client holds the lock already; the wait is for its own release");
    }

    pub(crate) fn contended(&self, claim: &Claim, held_by: Option<&str>) {
        tracing::debug!(target: "fencelock", event = "contended", engine = %self.engine, name = %claim.name(),
            claim = %claim.id(), holder = %claim.holder(), held_by = held_by.unwrap_or("unknown"), "contended");
        measures::contended(&self.engine);
    }

    /// A call that was given no lock; `None` if its future was dropped.
    pub(crate) fn refused(&self, why: Option<&Error>) {
        measures::refused(&self.engine, why.map(Error::kind));
    }

    /// A single try that found another holder.
    pub(crate) fn tried_in_vain(&self) {
        measures::tried_in_vain(&self.engine);
    }

    /// What a claim had left at the server is undone, or left to run out because of `failure`.
    pub(crate) fn abandoned(&self, claim: &Claim, failure: Option<&Error>) {
        match failure {
            None => {
                tracing::debug!(target: "fencelock", parent: span(claim), event = "abandoned", engine = %self.engine,
                name = %claim.name(), claim = %claim.id(), holder = %claim.holder(), outcome = "undone", "abandoned")
            }
            Some(failure) => tracing::warn!(target: "fencelock", parent: span(claim), event = "abandoned",
                engine = %self.engine, name = %claim.name(), claim = %claim.id(), holder = %claim.holder(),
                outcome = "expires", %failure, "not undone; left to run out"),
        }
        measures::abandoned(&self.engine, failure.is_none());
    }
}

/// The span in which the claim was made: what happens to it later belongs to that trace.
fn span(claim: &Claim) -> &Span {
    claim.span()
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").field("engine", &self.engine).finish_non_exhaustive()
    }
}
