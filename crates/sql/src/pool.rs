//! Connections of one client to one server.
//!
//! A statement's future may be dropped, or given up, while the statement runs
//! on: such a connection is closed and never used again. So what comes out of
//! the pool has nothing on its way, in no transaction, and no statement can be
//! answered by another's answer.

use crate::failure::{Cause, Failure};
use async_trait::async_trait;
use fencelock_core::{ErrorKind, Request, Result};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

/// How often a statement is sent again that others were in the way of.
const CONFLICTS: u32 = 20;

/// What makes connections.
#[async_trait]
pub(crate) trait Opens: Send + Sync + 'static {
    type Connection: Send + 'static;

    /// A connection that is ready for statements.
    async fn open(&self) -> Result<Self::Connection>;
}

/// A statement that can be sent to a connection, again if need be.
pub(crate) trait Sends<C: Send>: Sync {
    type Answer: Send;

    fn send(&self, connection: &mut C) -> impl Future<Output = Result<Self::Answer, Failure>> + Send;
}

pub(crate) struct Pool<O: Opens> {
    opens: Arc<O>,
    idle: Mutex<Vec<O::Connection>>,
    permits: Semaphore,
    limit: Duration,
}

/// A connection to oneself, closed when dropped in the middle of a statement.
pub(crate) struct Seat<'p, O: Opens> {
    pool: &'p Pool<O>,
    connection: Option<O::Connection>,
    /// It has been idle, and may have broken meanwhile.
    old: bool,
    until: Instant,
    _permit: SemaphorePermit<'p>,
}

impl<O: Opens> Pool<O> {
    /// At most `size` connections, the first of which is open; a statement may take `limit`.
    pub(crate) fn new(opens: Arc<O>, size: usize, first: Option<O::Connection>, limit: Duration) -> Self {
        Self { opens, idle: Mutex::new(first.into_iter().collect()), permits: Semaphore::new(size), limit }
    }

    /// Waits for a connection, opening one if need be.
    ///
    /// # Errors
    /// Whatever it is, nothing was sent.
    pub(crate) async fn seat(&self) -> Result<Seat<'_, O>> {
        let until = Instant::now() + self.limit;
        let permit = match self.permits.try_acquire() {
            Ok(permit) => permit,
            Err(_) => match timeout_at(until, self.permits.acquire()).await {
                Ok(Ok(permit)) => permit,
                _ => {
                    let message = format!("all connections were busy for {:?}", self.limit);
                    return Err(Failure::new(ErrorKind::Unavailable, message).into());
                }
            },
        };
        let idle = self.idle().pop();
        let old = idle.is_some();
        let connection = match idle {
            Some(connection) => connection,
            None => self.open(until).await?,
        };
        Ok(Seat { pool: self, connection: Some(connection), old, until, _permit: permit })
    }

    async fn open(&self, until: Instant) -> Result<O::Connection> {
        match timeout_at(until, self.opens.open()).await {
            Ok(opened) => opened,
            Err(_) => {
                let message = format!("no connection in {:?}", self.limit);
                Err(Failure::new(ErrorKind::Unavailable, message).into())
            }
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<O::Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes what is idle.
    #[cfg(feature = "mysql")]
    pub(crate) fn forget(&self) {
        self.idle().clear();
    }

    pub(crate) fn opens(&self) -> &Arc<O> {
        &self.opens
    }
}

impl<O: Opens> Seat<'_, O> {
    /// Sends a statement that means the same however often it arrives: again,
    /// after others were in the way, and after an idle connection turned out broken.
    pub(crate) async fn send<S: Sends<O::Connection>>(self, statement: S) -> Result<S::Answer, Failure> {
        self.send_if(statement, |_| true).await
    }

    /// The same with a statement whose second answer may mean something else:
    /// unless it `is_clear`, what came of the first is not known.
    pub(crate) async fn send_if<S: Sends<O::Connection>>(
        self,
        statement: S,
        is_clear: impl Fn(&S::Answer) -> bool + Send,
    ) -> Result<S::Answer, Failure> {
        let (outcome, lost) = self.deliver(statement).await;
        match (outcome, lost) {
            (Ok(answer), Some(failure)) if !is_clear(&answer) => Err(failure),
            (outcome, _) => outcome,
        }
    }

    /// The same with a statement that could take the lock. `request` is answered
    /// only if nothing of it may still come: not after a copy that had no answer.
    pub(crate) async fn send_for<S: Sends<O::Connection>>(
        self,
        request: Request,
        statement: S,
    ) -> Result<S::Answer, Failure> {
        let (outcome, is_settled) = self.send_known(statement).await;
        if is_settled {
            request.answered();
        }
        outcome
    }

    /// The same, and whether nothing of it may still come.
    pub(crate) async fn send_known<S: Sends<O::Connection>>(self, statement: S) -> (Result<S::Answer, Failure>, bool) {
        let (outcome, lost) = self.deliver(statement).await;
        let is_settled = lost.is_none() && outcome.as_ref().err().is_none_or(|failure| failure.not_done);
        (outcome, is_settled)
    }

    /// What came of it, and what became of an earlier copy that had no answer.
    async fn deliver<S: Sends<O::Connection>>(mut self, statement: S) -> (Result<S::Answer, Failure>, Option<Failure>) {
        let mut conflicts = 0;
        let mut first = None;
        loop {
            match self.once(&statement).await {
                Err(failure) if failure.cause == Cause::Conflict && conflicts < CONFLICTS => {
                    conflicts += 1;
                    tokio::time::sleep(Duration::from_millis(u64::from(conflicts))).await;
                }
                Err(failure) if failure.cause == Cause::Broken && std::mem::take(&mut self.old) => {
                    tracing::debug!(target: "fencelock", error = %failure.error, "a connection had broken; another one");
                    match self.pool.open(self.until).await {
                        Ok(connection) => self.connection = Some(connection),
                        Err(_) => return (Err(failure), None),
                    }
                    first = (!failure.not_done).then_some(failure);
                }
                Ok(answer) => return (Ok(answer), first),
                // Known of the second is not known of the first.
                Err(failure) => {
                    let not_done = failure.not_done && first.is_none();
                    return (Err(Failure { not_done, ..failure }), first);
                }
            }
        }
    }

    async fn once<S: Sends<O::Connection>>(&mut self, statement: &S) -> Result<S::Answer, Failure> {
        // Taken out, so that a dropped future closes it.
        let Some(mut connection) = self.connection.take() else {
            return Err(Failure::new(ErrorKind::Unavailable, "the connection is closed"));
        };
        match timeout_at(self.until, statement.send(&mut connection)).await {
            Ok(Ok(answer)) => {
                self.connection = Some(connection);
                Ok(answer)
            }
            Ok(Err(failure)) => {
                if failure.reopen {
                    // The others go to the same server, and have broken too, or go to one that was replaced.
                    self.pool.idle().clear();
                } else {
                    self.connection = Some(connection);
                }
                Err(failure)
            }
            Err(_) => Err(Failure::no_answer(self.pool.limit)),
        }
    }
}

impl<O: Opens> Drop for Seat<'_, O> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.pool.idle().push(connection);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock_core::{Claim, LockName, Terms};
    use std::sync::atomic::{AtomicU32, Ordering};

    struct Numbered(AtomicU32);

    #[async_trait]
    impl Opens for Numbered {
        type Connection = u32;

        async fn open(&self) -> Result<u32> {
            Ok(self.0.fetch_add(1, Ordering::SeqCst))
        }
    }

    /// Breaks the first connection, known not done or not.
    struct Breaks(bool);

    impl Sends<u32> for Breaks {
        type Answer = u32;

        async fn send(&self, connection: &mut u32) -> Result<u32, Failure> {
            if *connection > 0 {
                return Ok(*connection);
            }
            let failure = Failure::new(ErrorKind::Unavailable, "broken").reopen().because(Cause::Broken);
            Err(if self.0 { failure.not_done() } else { failure })
        }
    }

    async fn sent(not_done: bool) -> (Claim, Pool<Numbered>) {
        let claim = Terms::new(LockName::new("a").unwrap(), Duration::from_secs(1)).mint().unwrap();
        let pool = Pool::new(Arc::new(Numbered(AtomicU32::new(1))), 1, Some(0), Duration::from_secs(5));
        let answer = pool.seat().await.unwrap().send_for(claim.request(), Breaks(not_done)).await;
        assert_eq!(answer.unwrap(), 1, "sent again, on a new connection");
        (claim, pool)
    }

    #[tokio::test]
    async fn a_copy_without_an_answer_may_still_come() {
        assert!(sent(false).await.0.is_unanswered());
        assert!(!sent(true).await.0.is_unanswered(), "that one was refused");
    }

    #[tokio::test]
    async fn an_answer_that_is_not_clear_is_none() {
        let pool = Pool::new(Arc::new(Numbered(AtomicU32::new(1))), 1, Some(0), Duration::from_secs(5));
        let failure = pool.seat().await.unwrap().send_if(Breaks(false), |_| false).await.unwrap_err();
        assert!(!failure.not_done);
        assert_eq!(pool.seat().await.unwrap().send_if(Breaks(false), |_| false).await.unwrap(), 1, "nothing was lost");
    }
}
