//! The task that keeps one hold alive, from its first renewal to its end.

use crate::hold::Hold;
use crate::{Ended, LossReason};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

/// The death of the renewing task, be it by a panic or with its runtime, is a loss.
struct Supervised(Arc<Hold>);

impl Drop for Supervised {
    fn drop(&mut self) {
        self.0.validity.lose(LossReason::SessionEnded);
    }
}

/// Keeps the hold alive until it ends. Its lease is read-locked meanwhile, so
/// that whoever write-locks it next has joined this task.
///
/// There is one of these for each hold, so what it keeps over an await is counted in bytes.
pub(crate) async fn guard(hold: Arc<Hold>) {
    let supervised = Supervised(hold);
    let slot = supervised.0.lease.read().await;
    let validity = &supervised.0.validity;
    let Some(mut kept) = slot.as_ref().map(|lease| lease.keep_alive(validity)) else { return };
    loop {
        let mut changed = pin!(supervised.0.validity.changes());
        changed.as_mut().enable();
        if !supervised.0.validity.is_held() {
            break;
        }
        // What ends the hold from outside counts before what the lease says of it.
        let reason = poll_fn(|cx| match changed.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => kept.as_mut().poll(cx).map(Some),
        });
        if let Some(reason) = reason.await {
            supervised.0.validity.lose(reason);
            break;
        }
    }
    drop(kept);
    drop(slot);
    let hold = &supervised.0;
    if matches!(hold.validity.ended(), Some(Ended::Lost(_))) {
        hold.retire();
        hold.drop_lease();
    }
}

#[cfg(test)]
mod tests {
    fn size<T, F: Future>(_: fn(T) -> F) -> usize {
        size_of::<F>()
    }

    /// The runtime gives a task whole lines of 128 bytes, and a part of them to its own.
    #[test]
    fn a_guardian_takes_two_lines_and_not_three() {
        assert!(size(super::guard) <= 152, "{}", size(super::guard));
    }
}
