//! Requests under way: what has been sent and not been answered.

use crate::sync::lock;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// Counts the requests of one claim.
#[derive(Default)]
pub(crate) struct Requests(Arc<Shared>);

#[derive(Default)]
struct Shared {
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
    pub(crate) fn begin(&self) -> Request {
        let mut counts = lock(&self.0.counts);
        counts.begun = counts.begun.saturating_add(1);
        counts.in_flight = counts.in_flight.saturating_add(1);
        Request { shared: Arc::clone(&self.0), answered: false }
    }

    pub(crate) fn any(&self) -> bool {
        lock(&self.0.counts).begun > 0
    }

    pub(crate) fn unanswered(&self) -> bool {
        let counts = lock(&self.0.counts);
        counts.unanswered || counts.in_flight > 0
    }

    pub(crate) fn in_flight(&self) -> bool {
        lock(&self.0.counts).in_flight > 0
    }

    pub(crate) async fn settled(&self) {
        loop {
            let settled = self.0.settled.notified();
            tokio::pin!(settled);
            settled.as_mut().enable();
            if lock(&self.0.counts).in_flight == 0 {
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
#[derive(Debug)]
#[must_use = "dropping it at once says that no answer came"]
pub struct Request {
    shared: Arc<Shared>,
    answered: bool,
}

impl Request {
    /// The server answered, or the request surely never left: its effect is known.
    pub fn answered(mut self) {
        self.answered = true;
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let mut counts = lock(&self.shared.counts);
        counts.in_flight = counts.in_flight.saturating_sub(1);
        counts.unanswered |= !self.answered;
        if counts.in_flight == 0 {
            self.shared.settled.notify_waiters();
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let counts = *lock(&self.counts);
        write!(f, "{} begun, {} in flight, unanswered: {}", counts.begun, counts.in_flight, counts.unanswered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_dropped_request_stays_unanswered() {
        let requests = Requests::default();
        assert!(!requests.any() && !requests.unanswered());
        let first = requests.begin();
        assert!(requests.unanswered(), "while it is on its way nobody knows");
        first.answered();
        assert!(requests.any() && !requests.unanswered());
        drop(requests.begin());
        requests.settled().await;
        assert!(requests.unanswered());
    }
}
