//! The task that keeps one hold alive, from its first renewal to its end.

use crate::hold::Hold;
use crate::{Ended, LossReason};
use std::sync::Arc;

/// The death of the renewing task, be it by a panic or with its runtime, is a loss.
struct Supervised<'a>(&'a Hold);

impl Drop for Supervised<'_> {
    fn drop(&mut self) {
        self.0.validity.lose(LossReason::SessionEnded);
    }
}

/// Keeps the hold alive until it ends. Its lease is read-locked meanwhile, so
/// that whoever write-locks it next has joined this task.
pub(crate) async fn guard(hold: Arc<Hold>) {
    let slot = hold.lease.read().await;
    let Some(lease) = slot.as_ref() else { return };
    let supervised = Supervised(&hold);
    tokio::select! {
        biased;
        () = hold.validity.until_not_held() => {}
        reason = lease.keep_alive(&hold.validity) => {
            hold.validity.lose(reason);
        }
    }
    drop(supervised);
    drop(slot);
    if matches!(hold.validity.ended(), Some(Ended::Lost(_))) {
        hold.retire();
        hold.drop_lease();
    }
}
