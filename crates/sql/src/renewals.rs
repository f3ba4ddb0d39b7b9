//! Renewals of all holds of a client, many in one statement.
//!
//! A commit costs the disk the same for one row as for many, so renewals that
//! are due close together go together. They wait for each other for a fiftieth
//! of the ttl, 50 ms at most, of which they have two thirds to spare.

use async_trait::async_trait;
use fencelock_core::{Claim, Error, ErrorKind, FencingToken, Result};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};

/// The most that renewals wait for each other.
const LINGER: Duration = Duration::from_millis(50);
/// The most rows in one statement, so that it stays short.
const MOST: usize = 500;

/// A connection that can renew many holds at once.
#[async_trait]
pub(crate) trait Renews: Send + Sync + 'static {
    fn engine(&self) -> &'static str;

    /// What became of each, in the same order.
    async fn renew(&self, batch: &[Wish]) -> Result<Vec<Renewed>>;
}

/// What a renewal came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewed {
    Yes,
    /// The claim does not hold the lock.
    No,
    /// Another transaction has the row to itself, so that nothing was done.
    #[cfg_attr(not(any(feature = "postgres", feature = "mysql")), allow(dead_code, reason = "servers have row locks"))]
    Locked,
}

/// A renewal that is wished for.
pub(crate) struct Wish {
    pub(crate) claim: Claim,
    /// Under which it holds the lock.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "it is compared where locks are handed on"))]
    pub(crate) token: FencingToken,
    pub(crate) server_ttl: Duration,
    tell: oneshot::Sender<Result<bool>>,
}

/// Who waits for a renewal, and the connection that they share.
pub(crate) struct Renewals<R> {
    renews: R,
    queue: Mutex<Queue>,
    sooner: Notify,
}

#[derive(Default)]
struct Queue {
    wishes: Vec<Wish>,
    due: Option<Instant>,
    /// Whether a task works the queue off.
    working: bool,
}

/// Lets the next wish start a task when this one ends, however it ends.
struct Working<R: Renews> {
    renewals: Arc<Renewals<R>>,
    /// The queue was empty, and said so itself.
    done: bool,
}

impl<R: Renews> Drop for Working<R> {
    fn drop(&mut self) {
        if !self.done {
            self.renewals.queue().working = false;
        }
    }
}

impl<R: Renews> Renewals<R> {
    pub(crate) fn new(renews: R) -> Arc<Self> {
        Arc::new(Self { renews, queue: Mutex::default(), sooner: Notify::new() })
    }

    /// Counts the ttl anew, if the claim holds the lock; at once, or with others that are due.
    pub(crate) async fn renew(
        self: &Arc<Self>,
        claim: &Claim,
        token: FencingToken,
        server_ttl: Duration,
        at_once: bool,
    ) -> Result<bool> {
        let linger = if at_once { Duration::ZERO } else { LINGER.min(claim.ttl() / 50) };
        let (tell, told) = oneshot::channel();
        self.wish(Wish { claim: claim.clone(), token, server_ttl, tell }, Instant::now() + linger);
        told.await.unwrap_or_else(|_| Err(self.unavailable("the renewal was given up")))
    }

    fn wish(self: &Arc<Self>, wish: Wish, due: Instant) {
        let mut queue = self.queue();
        queue.wishes.push(wish);
        if queue.due.is_none_or(|other| due < other) {
            queue.due = Some(due);
            self.sooner.notify_one();
        }
        if !queue.working {
            queue.working = true;
            tokio::spawn(Working { renewals: Arc::clone(self), done: false }.work());
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is due, or when something will be; neither if nobody waits.
    fn due(&self) -> (Vec<Wish>, Option<Instant>) {
        let mut queue = self.queue();
        // Whoever gave up asks again under the same claim, which must not be in one statement twice.
        queue.wishes.retain(|wish| !wish.tell.is_closed());
        if queue.wishes.is_empty() {
            queue.due = None;
            queue.working = false;
        }
        match queue.due {
            Some(due) if due <= Instant::now() => {
                let rest = queue.wishes.len().min(MOST);
                let rest = queue.wishes.split_off(rest);
                let batch = std::mem::replace(&mut queue.wishes, rest);
                if queue.wishes.is_empty() {
                    queue.due = None;
                }
                (batch, Some(due))
            }
            due => (Vec::new(), due),
        }
    }

    async fn work_off(&self, batch: Vec<Wish>) {
        let outcome = self.renews.renew(&batch).await;
        for (n, wish) in batch.into_iter().enumerate() {
            let told = match &outcome {
                Ok(renewed) => match renewed.get(n) {
                    Some(Renewed::Yes) => Ok(true),
                    Some(Renewed::No) => Ok(false),
                    _ => Err(self.unavailable("another transaction has the lock's row to itself")),
                },
                Err(e) => Err(Error::new(e.kind(), e.message().to_owned())
                    .with_engine(self.renews.engine())
                    .with_operation("renew")),
            };
            let _ = wish.tell.send(told.map_err(|e| e.with_name(wish.claim.name())));
        }
    }

    fn unavailable(&self, message: &'static str) -> Error {
        Error::new(ErrorKind::Unavailable, message).with_engine(self.renews.engine()).with_operation("renew")
    }
}

impl<R: Renews> Working<R> {
    /// Works the queue off, and ends when it is empty.
    async fn work(mut self) {
        loop {
            let renewals = &self.renewals;
            let (batch, due) = renewals.due();
            match due {
                Some(_) if !batch.is_empty() => renewals.work_off(batch).await,
                Some(due) => {
                    tokio::select! {
                        () = sleep_until(due) => {}
                        () = renewals.sooner.notified() => {}
                    }
                }
                None => {
                    self.done = true;
                    return;
                }
            }
        }
    }
}
