//! Waiting for what a watch has to tell.

use crate::failure::Failure;
use crate::holds::Registered;
use crate::session::Session;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use zookeeper_client::{OneshotWatcher, WatchedEvent};

/// What a watch will have to tell, by itself in memory: many are waited for, and the library's future is large.
pub(crate) type Told = Pin<Box<dyn Future<Output = WatchedEvent> + Send>>;

/// Begins to wait for what a watch has to tell.
pub(crate) fn told(watcher: OneshotWatcher) -> Told {
    Box::pin(watcher.changed())
}

/// The event that a watch was set for, or the news that the session has ended.
pub(crate) async fn changed(session: &Session, mut told: Told) -> Result<WatchedEvent, Failure> {
    let mut until_ended = pin!(session.until_ended());
    poll_fn(|cx| match until_ended.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(Err(ended())),
        Poll::Pending => poll(session, &mut told, cx),
    })
    .await
}

/// The same for a hold, which is woken when the session ends: ready with an event or that end.
pub(crate) fn poll_in(registered: &Registered, session: &Session, told: &mut Told, cx: &mut Context<'_>) -> Poll<()> {
    registered.woken_at_end(cx.waker());
    if session.has_ended() { Poll::Ready(()) } else { poll(session, told, cx).map(drop) }
}

fn ended() -> Failure {
    Failure::Unknown("the session has ended".to_owned())
}

/// The client library panics in who waits, if the task that would deliver the
/// event is gone with its runtime. So the end of the session is asked for first,
/// and a panic that comes all the same is taken for that end.
fn poll(session: &Session, told: &mut Told, cx: &mut Context<'_>) -> Poll<Result<WatchedEvent, Failure>> {
    match catch_unwind(AssertUnwindSafe(|| told.as_mut().poll(cx))) {
        Ok(event) => event.map(Ok),
        Err(_) => {
            session.end("the runtime that kept it is gone");
            Poll::Ready(Err(ended()))
        }
    }
}
