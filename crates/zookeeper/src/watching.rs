//! Waiting for what a watch has to tell.

use crate::failure::Failure;
use crate::session::Session;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use zookeeper_client::{OneshotWatcher, WatchedEvent};

/// The event that a watch was set for, or the news that the session has ended.
///
/// The client library panics in who waits, if the task that would deliver the
/// event is gone with its runtime. So the end of the session is asked for first,
/// and a panic that comes all the same is taken for that end.
pub(crate) async fn changed(session: &Session, watcher: OneshotWatcher) -> Result<WatchedEvent, Failure> {
    let ended = || Failure::Unknown("the session has ended".to_owned());
    let mut changed = pin!(watcher.changed());
    let mut until_ended = pin!(session.until_ended());
    std::future::poll_fn(|cx| {
        if until_ended.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(ended()));
        }
        match catch_unwind(AssertUnwindSafe(|| changed.as_mut().poll(cx))) {
            Ok(event) => event.map(Ok),
            Err(_) => {
                session.end("the runtime that kept it is gone");
                Poll::Ready(Err(ended()))
            }
        }
    })
    .await
}
