//! Running a client's work where its timers and connections live.

use crate::ledger::{Boxed, Errand, Ledger};
use crate::{Error, ErrorKind, Result};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinHandle};
use tracing::Instrument;

/// Where work runs, and what becomes of it when its caller drops the future.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// In the caller's future for as long as that is possible; dropped with it.
    Inline,
    /// As soon as it has to wait, in a task of the client's, so that a caller who
    /// does not poll holds nobody up; ended with the caller's future.
    Waiting,
    /// In the caller's future for as long as that is possible; finished in any case.
    Finished,
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
    manner: Manner,
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
        manner: Manner,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Self {
        Self { work: Work::Here(Box::pin(work)), home: home.clone(), ledger: ledger.clone(), manner }
    }

    fn is_home(&self) -> bool {
        Handle::try_current().is_ok_and(|here| here.id() == self.home.id())
    }

    fn poll_here(&mut self, cx: &mut Context<'_>) -> Poll<Result<T>> {
        match &mut self.work {
            Work::Here(work) => work.as_mut().poll(cx),
            Work::There(_) | Work::Done => Poll::Pending,
        }
    }

    fn poll_there(&mut self, cx: &mut Context<'_>) -> Poll<Result<T>> {
        self.work = match std::mem::replace(&mut self.work, Work::Done) {
            Work::Here(_) if self.ledger.is_closed() => return Poll::Ready(Err(gone())),
            Work::Here(work) => Work::There(self.home.spawn(work.in_current_span())),
            elsewhere => elsewhere,
        };
        match &mut self.work {
            Work::There(task) => Pin::new(task).poll(cx).map(|joined| joined.unwrap_or_else(|e| Err(ended(&e)))),
            Work::Here(_) | Work::Done => Poll::Pending,
        }
    }
}

fn gone() -> Error {
    Error::new(ErrorKind::Unavailable, "the runtime that the client connected on is gone")
}

fn ended(how: &JoinError) -> Error {
    if how.is_panic() { Error::new(ErrorKind::Engine, "the engine panicked") } else { gone() }
}

impl<T: Send + 'static> Future for Driven<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        let here = matches!(self.work, Work::Here(_)) && self.is_home();
        let outcome = match here.then(|| self.poll_here(cx)) {
            Some(Poll::Pending) if self.manner != Manner::Waiting => Poll::Pending,
            Some(Poll::Ready(outcome)) => Poll::Ready(outcome),
            _ => self.poll_there(cx),
        };
        if outcome.is_ready() {
            self.work = Work::Done;
        }
        outcome
    }
}

impl<T: Send + 'static> Drop for Driven<T> {
    fn drop(&mut self) {
        let finish: Boxed<()> = match (std::mem::replace(&mut self.work, Work::Done), self.manner) {
            (Work::Here(work), Manner::Finished) => Box::pin(async move {
                let _ = work.await;
            }),
            (Work::There(task), Manner::Finished) => Box::pin(async move {
                let _ = task.await;
            }),
            // Joined by the reaper, so that what it undoes is pending from now on.
            (Work::There(task), _) => Box::pin(async move {
                task.abort();
                let _ = task.await;
            }),
            _ => return,
        };
        self.ledger.send(Errand::Finish(finish));
    }
}
