//! Requests under way: what has been sent and not been answered.

use crate::claim::Attempted;
use crate::sync::lock;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// Counts the requests of one claim.
#[derive(Default)]
pub(crate) struct Requests {
    counts: Mutex<Counts>,
    settled: Notify,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    begun: u32,
    in_flight: u32,
    unanswered: bool,
}

impl Requests {
    pub(crate) fn any(&self) -> bool {
        self.begun() > 0
    }

    pub(crate) fn begun(&self) -> u32 {
        lock(&self.counts).begun
    }

    pub(crate) fn unanswered(&self) -> bool {
        let counts = lock(&self.counts);
        counts.unanswered || counts.in_flight > 0
    }

    pub(crate) fn in_flight(&self) -> bool {
        lock(&self.counts).in_flight > 0
    }

    pub(crate) async fn settled(&self) {
        loop {
            let settled = self.settled.notified();
            tokio::pin!(settled);
            settled.as_mut().enable();
            if lock(&self.counts).in_flight == 0 {
                return;
            }
            settled.await;
        }
    }
}

/// One request on its way; see [`Claim::request`](crate::Claim::request).
///
/// Dropping it unanswered is how a time-out, a broken connection and a dropped
/// future are recorded: the request may still arrive.
#[must_use = "dropping it at once says that no answer came"]
pub struct Request {
    /// The counts lie in what they are of, so that a request allocates nothing.
    of: Arc<Attempted>,
    ended: Ended,
}

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    Unanswered,
    Answered,
    NeverLeft,
}

impl Request {
    pub(crate) fn begin(of: &Arc<Attempted>) -> Self {
        let mut counts = lock(&of.requests.counts);
        counts.begun = counts.begun.saturating_add(1);
        counts.in_flight = counts.in_flight.saturating_add(1);
        drop(counts);
        Self { of: Arc::clone(of), ended: Ended::Unanswered }
    }

    /// The server answered, or the request surely never left: its effect is known.
    pub fn answered(mut self) {
        self.ended = Ended::Answered;
    }

    /// It surely never left, and it is as if it had not been begun: where none else was, there is nothing to undo.
    pub fn never_left(mut self) {
        self.ended = Ended::NeverLeft;
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let requests = &self.of.requests;
        let mut counts = lock(&requests.counts);
        counts.in_flight = counts.in_flight.saturating_sub(1);
        counts.unanswered |= self.ended == Ended::Unanswered;
        if self.ended == Ended::NeverLeft {
            counts.begun = counts.begun.saturating_sub(1);
        }
        if counts.in_flight == 0 {
            requests.settled.notify_waiters();
        }
    }
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let counts = *lock(&self.of.requests.counts);
        write!(f, "Request({} begun, {} in flight, unanswered: {})", counts.begun, counts.in_flight, counts.unanswered)
    }
}

#[cfg(test)]
mod tests {
    use crate::{LockName, Terms};
    use std::time::Duration;

    #[tokio::test]
    async fn a_dropped_request_stays_unanswered() {
        let claim = Terms::new(LockName::new("a").unwrap(), Duration::from_secs(1)).mint().unwrap();
        assert!(!claim.was_sent() && !claim.is_unanswered());
        let first = claim.request();
        assert!(claim.is_unanswered(), "while it is on its way nobody knows");
        let second = claim.request();
        second.answered();
        assert!(claim.is_unanswered());
        first.answered();
        assert!(claim.was_sent() && !claim.is_unanswered());
        drop(claim.request());
        claim.settled().await;
        assert!(claim.is_unanswered());
        assert_eq!(claim.requests(), 3);
    }

    #[tokio::test]
    async fn what_never_left_was_not_sent() {
        let claim = Terms::new(LockName::new("a").unwrap(), Duration::from_secs(1)).mint().unwrap();
        let request = claim.request();
        assert!(claim.was_sent(), "while nobody knows");
        request.never_left();
        assert!(!claim.was_sent() && !claim.is_unanswered());
        claim.settled().await;
    }
}
