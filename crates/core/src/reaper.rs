//! The undo ledger, and the task that works it off.
//!
//! Whatever a caller's dropped, timed-out or failed call may have left at the
//! server is undone here, by claim id, on its own time budget: the caller's is
//! used up or gone. Dropped guards are released here too.

use crate::clock::nanos;
use crate::hold::{self, Hold};
use crate::schedule::Schedule;
use crate::sync::lock;
use crate::{Attempt, Claim, DistributedLock, Liveness, Result};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

pub(crate) type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The longest that requests under way are waited for before their future is dropped.
const SETTLE: Duration = Duration::from_secs(5);
/// The longest one try of an undo may take; engines have shorter limits of their own.
const TRY: Duration = Duration::from_secs(10);

pub(crate) enum Errand {
    /// Let the requests of a given-up call be answered, then undo its claim.
    Settle(Boxed<Result<Attempt>>, Claim),
    /// Undo a claim.
    Undo(Claim),
    /// Undo a claim of a session once nobody may rely on its hold any more.
    UndoAfter(Claim, Duration),
    /// Release the hold of a dropped guard.
    Release(Arc<Hold>),
    /// Finish what a caller who has gone had begun.
    Finish(Boxed<()>),
}

/// The way to the reaper; sending never blocks and works on any thread.
#[derive(Clone)]
pub(crate) struct Ledger {
    errands: mpsc::UnboundedSender<Entry>,
    open: Arc<Open>,
}

struct Entry(Errand, OpenEntry);

/// How many entries are not worked off.
#[derive(Default)]
struct Open {
    count: Mutex<usize>,
    none: Notify,
}

struct OpenEntry(Arc<Open>);

impl Drop for OpenEntry {
    fn drop(&mut self) {
        let mut count = lock(&self.0.count);
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.0.none.notify_waiters();
        }
    }
}

impl Ledger {
    pub(crate) fn send(&self, errand: Errand) {
        *lock(&self.open.count) += 1;
        // Without its runtime the client can undo nothing: the lease runs out instead.
        let _ = self.errands.send(Entry(errand, OpenEntry(Arc::clone(&self.open))));
    }

    pub(crate) fn undo(&self, claim: Claim) {
        self.send(Errand::Undo(claim));
    }

    /// Whether the runtime that works the ledger off is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.errands.is_closed()
    }

    pub(crate) fn open(&self) -> usize {
        *lock(&self.open.count)
    }

    pub(crate) async fn worked_off(&self) {
        loop {
            let none = self.open.none.notified();
            tokio::pin!(none);
            none.as_mut().enable();
            if self.open() == 0 {
                return;
            }
            none.await;
        }
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").field("open", &self.open()).finish()
    }
}

/// A ledger, and the task to spawn that works it off until nobody can write into it.
pub(crate) fn ledger(
    engine: Arc<dyn DistributedLock>,
    schedule: Arc<Schedule>,
) -> (Ledger, impl Future<Output = ()> + Send + 'static) {
    let (errands, inbox) = mpsc::unbounded_channel();
    (Ledger { errands, open: Arc::default() }, reap(engine, schedule, inbox))
}

async fn reap(engine: Arc<dyn DistributedLock>, schedule: Arc<Schedule>, mut inbox: mpsc::UnboundedReceiver<Entry>) {
    let mut under_way = JoinSet::new();
    loop {
        tokio::select! {
            entry = inbox.recv() => match entry {
                Some(Entry(errand, open)) => {
                    let work = run(Arc::clone(&engine), errand);
                    under_way.spawn(async move {
                        work.await;
                        drop(open);
                    });
                }
                None => break,
            },
            Some(_) = under_way.join_next() => {}
        }
    }
    while under_way.join_next().await.is_some() {}
    schedule.close();
}

async fn run(engine: Arc<dyn DistributedLock>, errand: Errand) {
    match errand {
        Errand::Settle(call, claim) => settle(&*engine, call, &claim).await,
        Errand::Undo(claim) => undo(&*engine, &claim).await,
        Errand::UndoAfter(claim, delay) => {
            tokio::time::sleep(delay).await;
            undo(&*engine, &claim).await;
        }
        Errand::Release(hold) => {
            if hold::finish_release(Arc::clone(&hold)).await.is_err_and(|e| e.is_retryable()) {
                tracing::debug!(target: "fencelock", name = %hold.claim().name(), "release goes on in the background");
            }
        }
        Errand::Finish(work) => work.await,
    }
}

/// A request that is under way can arrive after its undo; so it is waited for.
async fn settle(engine: &dyn DistributedLock, mut call: Boxed<Result<Attempt>>, claim: &Claim) {
    let quiet = async {
        tokio::select! {
            () = claim.settled() => claim.latest().settled().await,
            () = tokio::time::sleep(SETTLE) => {}
        }
    };
    let granted = tokio::select! {
        biased;
        () = quiet => None,
        outcome = &mut call => match outcome {
            Ok(Attempt::Granted(grant)) => Some(grant.claim),
            Ok(Attempt::Contended { .. }) | Err(_) => None,
        },
    };
    let last = granted.unwrap_or_else(|| claim.latest());
    drop(call);
    undo(engine, &last).await;
}

/// Asks again until it is known to be undone; a lease that must have ended by itself needs no more asking.
async fn undo(engine: &dyn DistributedLock, claim: &Claim) {
    let horizon = match engine.guarantees().liveness() {
        Liveness::Lease => Some(claim.now().plus(claim.server_ttl())),
        Liveness::Session => None,
    };
    let mut pause = Duration::from_millis(50);
    loop {
        let failure = match tokio::time::timeout(TRY, engine.abandon(claim)).await {
            Ok(Ok(())) => {
                tracing::debug!(target: "fencelock", event = "abandoned", name = %claim.name(), claim = %claim.id(), "abandoned");
                return;
            }
            Ok(Err(e)) => e.to_string(),
            Err(_) => "no answer".to_owned(),
        };
        if horizon.is_some_and(|end| claim.now() >= end) {
            tracing::warn!(target: "fencelock", event = "abandoned", name = %claim.name(), claim = %claim.id(), failure,
                "not undone; left to run out");
            return;
        }
        let spread = Duration::from_nanos(fastrand::u64(0..=nanos(pause)));
        tokio::time::sleep(pause / 2 + spread).await;
        pause = (pause * 2).min(Duration::from_secs(5));
    }
}
