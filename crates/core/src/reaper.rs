//! The task that works the undo ledger off.
//!
//! Whatever a caller's dropped, timed-out or failed call may have left at the
//! server is undone here, by claim id, on its own time budget: the caller's is
//! used up or gone. Dropped guards are released here too.

use crate::clock::nanos;
use crate::hold;
use crate::ledger::{Entry, Errand};
use crate::pursuit::Call;
use crate::rescue::Rescue;
use crate::schedule::Schedule;
use crate::{Attempt, Claim, Clock, DistributedLock, Error, ErrorKind, Liveness};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// The longest that requests under way are waited for before their future is dropped.
const SETTLE: Duration = Duration::from_secs(5);
/// The longest one try of an undo may take; engines have shorter limits of their own.
const TRY: Duration = Duration::from_secs(10);
/// The longest that a place in a queue outlives its waiter, where holds live on leases.
const QUEUE: Duration = Duration::from_secs(20);

pub(crate) async fn reap(
    engine: Arc<dyn DistributedLock>,
    schedule: Arc<Schedule>,
    (rescue, clock): (Arc<Rescue>, Clock),
    mut inbox: mpsc::UnboundedReceiver<Entry>,
) {
    let rescuer = tokio::spawn(async move { rescue.rescue(&clock).await });
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
    rescuer.abort();
    schedule.close();
}

async fn run(engine: Arc<dyn DistributedLock>, errand: Errand) {
    match errand {
        Errand::Settle(call, claim) => settle(engine, call, &claim).await,
        Errand::Undo(claim, done) => {
            undo(engine, &claim).await;
            drop(done);
        }
        Errand::UndoAfter(claim, delay) => {
            tokio::time::sleep(delay).await;
            undo(engine, &claim).await;
        }
        Errand::Release(releasing) => {
            let name = releasing.name();
            if let Err(failure) = hold::finish_release(releasing).await {
                tracing::debug!(target: "fencelock", %name, %failure, "the release of a dropped guard");
            }
        }
        Errand::Finish(work) => work.await,
    }
}

/// A request that is under way can arrive after its undo; so it is waited for.
async fn settle(engine: Arc<dyn DistributedLock>, mut call: Call, claim: &Claim) {
    let quiet = async {
        let all_answered = async {
            // An answer may lead to another attempt, so the newest is asked again.
            while claim.latest().is_under_way() {
                claim.latest().settled().await;
            }
        };
        tokio::select! {
            () = all_answered => {}
            () = tokio::time::sleep(SETTLE) => {}
        }
    };
    let granted = tokio::select! {
        biased;
        () = quiet => None,
        outcome = call.outcome() => match outcome {
            Ok(Attempt::Granted(grant)) => Some(grant.claim),
            Ok(Attempt::Contended { .. }) | Err(_) => None,
        },
    };
    drop(call);
    undo(engine, &granted.unwrap_or_else(|| claim.latest())).await;
}

/// Asks again until it is known to be undone; what must have ended by itself needs no more asking.
async fn undo(engine: Arc<dyn DistributedLock>, claim: &Claim) {
    let begun = claim.now();
    let by_itself = claim.longest_server_ttl().max(QUEUE);
    let in_session = engine.guarantees().liveness() == Liveness::Session;
    let mut pause = Duration::from_millis(50);
    loop {
        let failure = match abandon(&engine, claim).await {
            Ok(()) => {
                claim.abandoned(None);
                return;
            }
            Err(failure) => failure,
        };
        // In a session nothing ends by itself, so there it is asked for as long as the session lives.
        if !in_session && claim.now().since(begun) >= by_itself {
            claim.abandoned(Some(&failure));
            return;
        }
        let spread = Duration::from_nanos(fastrand::u64(0..=nanos(pause)));
        tokio::time::sleep(pause / 2 + spread).await;
        pause = (pause * 2).min(Duration::from_secs(5));
    }
}

async fn abandon(engine: &Arc<dyn DistributedLock>, claim: &Claim) -> Result<(), Error> {
    let (engine, claim) = (Arc::clone(engine), claim.clone());
    // A task of its own, so that a panic in an engine is one failure of several and not the end of the undo.
    let mut asking = tokio::spawn(async move { engine.abandon(&claim).await });
    match tokio::time::timeout(TRY, &mut asking).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => Err(Error::new(ErrorKind::Engine, "the engine panicked")),
        Err(_) => {
            asking.abort();
            Err(Error::new(ErrorKind::Unavailable, "no answer"))
        }
    }
}
