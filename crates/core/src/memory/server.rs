//! The server: a table of locks behind a network that can fail.

use super::faults::{Delivery, Faults, Operation};
use super::table::Table;
use crate::sync::lock;
use crate::{Clock, Error, ErrorKind, FencingToken, LockName, Moment, Result, Terms};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

/// A lock server in this process. Cloning gives the same server.
#[derive(Clone)]
pub struct MemoryServer(Arc<Inner>);

struct Inner {
    clock: Clock,
    table: Mutex<Table>,
    faults: Mutex<Faults>,
    /// Kept beside the faults so that a request that meets none locks nothing more.
    faulty: AtomicBool,
    healed: Notify,
}

/// A request that was not answered, and whether it can have arrived.
pub(super) enum Failure {
    Refused,
    NoAnswer,
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Self::new(
            ErrorKind::Unavailable,
            match failure {
                Failure::Refused => "the server is down",
                Failure::NoAnswer => "the server did not answer in time",
            },
        )
    }
}

impl MemoryServer {
    /// A server without locks, on the system's clock.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(Clock::system())
    }

    /// A server that judges expiry by `clock`; give the same to its clients.
    #[must_use]
    pub fn with_clock(clock: Clock) -> Self {
        let (table, faults) = (Mutex::default(), Mutex::default());
        Self(Arc::new(Inner { clock, table, faults, faulty: AtomicBool::new(false), healed: Notify::new() }))
    }

    /// Runs `request` at the server, as the network lets it.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        operation: Operation,
        limit: Duration,
        request: impl Fn(&mut Table, Moment) -> T + Send + 'static,
    ) -> std::result::Result<T, Failure> {
        if !self.0.faulty.load(Ordering::SeqCst) {
            return Ok(self.apply(&request));
        }
        let (down, hung, delivery) = {
            let mut faults = lock(&self.0.faults);
            (faults.down, faults.hung, faults.take(operation))
        };
        if down {
            return Err(Failure::Refused);
        }
        let (reply, answer) = oneshot::channel();
        let server = self.clone();
        // A task of its own: what is on its way arrives, whether or not the sender still waits.
        tokio::spawn(async move {
            match delivery {
                Some(Delivery::Lost) => return keep_silent(reply, limit).await,
                Some(Delivery::Late(late)) => tokio::time::sleep(late).await,
                _ => {}
            }
            if hung {
                server.until_healed().await;
            }
            let answer = server.apply(&request);
            if delivery == Some(Delivery::ReplyLost) {
                return keep_silent(reply, limit).await;
            }
            let _ = reply.send(answer);
            if let Some(Delivery::Twice(later)) = delivery {
                tokio::time::sleep(later).await;
                server.apply(&request);
            }
        });
        match tokio::time::timeout(limit, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) | Err(_) => Err(Failure::NoAnswer),
        }
    }

    fn apply<T>(&self, request: &impl Fn(&mut Table, Moment) -> T) -> T {
        request(&mut lock(&self.0.table), self.0.clock.now())
    }

    async fn until_healed(&self) {
        loop {
            let healed = self.0.healed.notified();
            tokio::pin!(healed);
            healed.as_mut().enable();
            if !lock(&self.0.faults).hung {
                return;
            }
            healed.await;
        }
    }

    fn change(&self, change: impl FnOnce(&mut Faults)) {
        let mut faults = lock(&self.0.faults);
        change(&mut faults);
        self.0.faulty.store(faults.any(), Ordering::SeqCst);
        drop(faults);
        self.0.healed.notify_waiters();
    }

    /// While down, every request fails at once and none arrives. Leases run on.
    pub fn set_down(&self, down: bool) {
        self.change(|faults| faults.down = down);
    }

    /// While hung, no request is answered; those sent meanwhile arrive when it ends.
    pub fn set_hung(&self, hung: bool) {
        self.change(|faults| faults.hung = hung);
    }

    /// Makes the next request of this kind, by any client, travel so. Several
    /// are used up in the order in which they were given.
    pub fn inject(&self, operation: Operation, delivery: Delivery) {
        if matches!(delivery, Delivery::Twice(_)) {
            lock(&self.0.table).expect_copies();
        }
        self.change(|faults| faults.next.push_back((operation, delivery)));
    }

    /// Gives `name` to somebody else for `ttl`, past its holder and everyone who waits.
    ///
    /// # Errors
    /// `Engine` if the system has no randomness to give.
    pub fn steal(&self, name: &LockName, ttl: Duration) -> Result<FencingToken> {
        let thief = Terms::new(name.clone(), ttl).with_holder("thief").with_clock(self.0.clock.clone()).mint()?;
        Ok(self.apply(&|table: &mut Table, now| table.steal(&thief, now)))
    }

    /// Ends the lease of `name` now, as if its time had run out; false if nobody held it.
    #[must_use]
    pub fn expire(&self, name: &LockName) -> bool {
        self.apply(&|table: &mut Table, now| table.expire(name, now))
    }

    /// How many names have a holder or a waiter.
    #[must_use]
    pub fn entries(&self) -> usize {
        lock(&self.0.table).len()
    }
}

/// Keeps the sender waiting to the end of its limit.
async fn keep_silent<T>(reply: oneshot::Sender<T>, limit: Duration) {
    tokio::time::sleep(limit).await;
    drop(reply);
}

impl Default for MemoryServer {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryServer").field("entries", &self.entries()).field("faults", &self.0.faults).finish()
    }
}
