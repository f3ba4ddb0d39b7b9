//! Running a client's work where its timers and connections live.

use crate::reaper::{Boxed, Errand, Ledger};
use crate::{Error, ErrorKind, Result};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// What becomes of the work when its caller drops the future.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnDrop {
    /// It is dropped too; what it holds undoes itself.
    Stop,
    /// The reaper finishes it.
    Finish,
}

/// Work of a client, awaited by a caller who may be anywhere.
///
/// On the client's own runtime it runs inside the caller's future, without a
/// task or a wake-up of its own. From anywhere else, another runtime or none,
/// it moves to the client's runtime, since timers and sockets belong there.
pub(crate) struct Driven<T: Send + 'static> {
    work: Work<T>,
    home: Handle,
    ledger: Ledger,
    on_drop: OnDrop,
}

enum Work<T> {
    Here(Boxed<Result<T>>),
    There(JoinHandle<Result<T>>),
    Done,
}

impl<T: Send + 'static> Driven<T> {
    pub(crate) fn new(
        home: &Handle,
        ledger: &Ledger,
        on_drop: OnDrop,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Self {
        Self { work: Work::Here(Box::pin(work)), home: home.clone(), ledger: ledger.clone(), on_drop }
    }

    fn is_home(&self) -> bool {
        Handle::try_current().is_ok_and(|here| here.id() == self.home.id())
    }
}

fn gone() -> Error {
    Error::new(ErrorKind::Unavailable, "the runtime that the client connected on is gone")
}

impl<T: Send + 'static> Future for Driven<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        if matches!(self.work, Work::Here(_)) && !self.is_home() {
            let Work::Here(work) = std::mem::replace(&mut self.work, Work::Done) else { return Poll::Pending };
            if self.ledger.is_closed() {
                return Poll::Ready(Err(gone()));
            }
            self.work = Work::There(self.home.spawn(work));
        }
        let outcome = match &mut self.work {
            Work::Here(work) => work.as_mut().poll(cx),
            Work::There(task) => Pin::new(task).poll(cx).map(|joined| joined.unwrap_or_else(|_| Err(gone()))),
            Work::Done => Poll::Pending,
        };
        if outcome.is_ready() {
            self.work = Work::Done;
        }
        outcome
    }
}

impl<T: Send + 'static> Drop for Driven<T> {
    fn drop(&mut self) {
        match (std::mem::replace(&mut self.work, Work::Done), self.on_drop) {
            (Work::Here(work), OnDrop::Finish) => {
                self.ledger.send(Errand::Finish(Box::pin(async move {
                    let _ = work.await;
                })));
            }
            (Work::There(task), OnDrop::Stop) => {
                // Joined by the reaper, so that what it undoes is pending from now on.
                self.ledger.send(Errand::Finish(Box::pin(async move {
                    task.abort();
                    let _ = task.await;
                })));
            }
            _ => {}
        }
    }
}
