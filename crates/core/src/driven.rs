//! Running a client's work where its timers and connections live.

use crate::client::Shared;
use crate::ledger::{Boxed, Errand};
use crate::rescue::Moves;
use crate::sync::lock;
use crate::{Claim, Error, ErrorKind, Result};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, TryLockError, Weak};
use std::task::{Context, Poll, Waker};
use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinHandle};
use tracing::{Instrument, Span};

/// Where work runs, and what becomes of it when its caller drops the future.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// In the caller's future for as long as that is possible; ended with it.
    Inline,
    /// As soon as it has to wait, in a task of the client's; ended with the caller's future.
    Waiting,
    /// In the caller's future for as long as that is possible; finished in any case.
    Finished,
}

/// Work of a client, awaited by a caller who may be anywhere.
///
/// On the client's own runtime it runs inside the caller's future, without a
/// task or a wake-up of its own, until it is seen to wait for another holder or has
/// lain there for [some time](crate::rescue): from then on in a task of the client's,
/// so that a caller who does not poll holds nobody up. From anywhere else, another
/// runtime or none, it moves to the client's runtime, since timers and sockets belong there.
pub(crate) struct Driven<T: Send + 'static> {
    berth: Arc<Berth<T>>,
    /// Under which number it is watched over.
    number: Option<u64>,
    manner: Manner,
}

/// Where the work is. Whoever polls it there has the lock.
struct Berth<T> {
    place: Mutex<Place<T>>,
    /// It is to go on without its caller.
    called: AtomicBool,
    client: Arc<Shared>,
    /// What it is done for.
    claim: OnceLock<Claim>,
}

enum Place<T> {
    Here(Boxed<Result<T>>, Option<Caller>),
    There(JoinHandle<Result<T>>),
    Done,
}

/// Who has polled last.
struct Caller {
    waker: Waker,
    span: Span,
}

impl<T: Send + 'static> Place<T> {
    /// Goes on in a task of the client's; whom to wake then, so that it waits for that.
    fn move_to(&mut self, home: &Handle) -> Option<Waker> {
        let (there, waker) = match std::mem::replace(self, Self::Done) {
            Self::Here(work, Some(Caller { waker, span })) => {
                (Self::There(home.spawn(work.instrument(span))), Some(waker))
            }
            Self::Here(work, None) => (Self::There(home.spawn(work.in_current_span())), None),
            elsewhere => (elsewhere, None),
        };
        *self = there;
        waker
    }
}

impl<T: Send + 'static> Berth<T> {
    fn poll(&self, manner: Manner, cx: &mut Context<'_>) -> Poll<Result<T>> {
        let mut place = lock(&self.place);
        if let Place::Here(work, caller) = &mut *place {
            if self.is_home() {
                if let Poll::Ready(outcome) = work.as_mut().poll(cx) {
                    *place = Place::Done;
                    return Poll::Ready(outcome);
                }
                if manner != Manner::Waiting && !self.called.load(Ordering::SeqCst) {
                    match caller {
                        Some(caller) => caller.waker.clone_from(cx.waker()),
                        None => *caller = Some(Caller { waker: cx.waker().clone(), span: Span::current() }),
                    }
                    return Poll::Pending;
                }
            } else if self.client.context.ledger.is_closed() {
                return Poll::Ready(Err(gone()));
            }
            *caller = None;
        }
        self.call();
        let _ = place.move_to(&self.client.home);
        let Place::There(task) = &mut *place else { return Poll::Pending };
        let outcome = Pin::new(task).poll(cx).map(|joined| joined.unwrap_or_else(|e| Err(ended(&e))));
        if outcome.is_ready() {
            *place = Place::Done;
        }
        outcome
    }

    /// From now on, or from the end of the poll that is under way, it goes on without its caller.
    fn call(&self) {
        self.called.store(true, Ordering::SeqCst);
        if let Some(claim) = self.claim.get() {
            claim.moves_over();
        }
    }

    fn is_home(&self) -> bool {
        Handle::try_current().is_ok_and(|here| here.id() == self.client.home.id())
    }

    /// Moves what was called, unless somebody has it just now, who does this after.
    fn heed(&self) {
        if self.called.load(Ordering::SeqCst) {
            let waker = match self.place.try_lock() {
                Ok(mut place) => place.move_to(&self.client.home),
                Err(TryLockError::Poisoned(place)) => PoisonError::into_inner(place).move_to(&self.client.home),
                Err(TryLockError::WouldBlock) => None,
            };
            // Outside the lock: it is the caller's code.
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

impl<T: Send + 'static> Moves for Berth<T> {
    fn move_over(&self) {
        self.call();
        self.heed();
    }
}

impl<T: Send + 'static> Driven<T> {
    pub(crate) fn new(
        client: &Arc<Shared>,
        manner: Manner,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Self {
        let place = Mutex::new(Place::Here(Box::pin(work), None));
        let berth = Berth { place, called: AtomicBool::new(false), client: Arc::clone(client), claim: OnceLock::new() };
        Self { berth: Arc::new(berth), number: None, manner }
    }

    /// The work is that of `claim`: it goes on without its caller as soon as the claim waits for another.
    pub(crate) fn of(self, claim: Claim) -> Self {
        claim.driven_by(Some(self.itself()));
        let _ = self.berth.claim.set(claim);
        self
    }

    fn itself(&self) -> Weak<dyn Moves> {
        let berth: Weak<Berth<T>> = Arc::downgrade(&self.berth);
        berth
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
        let outcome = self.berth.poll(self.manner, cx);
        if outcome.is_pending() {
            if self.number.is_none() {
                self.number = Some(self.berth.client.context.ledger.rescue().entered(self.itself()));
            }
            // Called by somebody else while the lock was ours.
            self.berth.heed();
        }
        outcome
    }
}

impl<T: Send + 'static> Drop for Driven<T> {
    fn drop(&mut self) {
        let ledger = &self.berth.client.context.ledger;
        if let Some(number) = self.number {
            ledger.rescue().left(number);
        }
        if let Some(claim) = self.berth.claim.get() {
            claim.driven_by(None);
        }
        let place = std::mem::replace(&mut *lock(&self.berth.place), Place::Done);
        let finish: Boxed<()> = match (place, self.manner) {
            (Place::Here(work, _), Manner::Finished) => Box::pin(async move {
                let _ = work.await;
            }),
            (Place::There(task), Manner::Finished) => Box::pin(async move {
                let _ = task.await;
            }),
            // Joined by the reaper, so that what it undoes is pending from now on.
            (Place::There(task), _) => Box::pin(async move {
                task.abort();
                let _ = task.await;
            }),
            _ => return,
        };
        ledger.send(Errand::Finish(finish));
    }
}
