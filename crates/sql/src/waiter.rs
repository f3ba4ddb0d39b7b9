//! One who waits for a lock: asking for it, and being handed it.

use crate::engine::SqlLock;
use crate::table::Place;
use async_trait::async_trait;
use fencelock_core::{Attempt, Claim, Grant, Hint, Hints, LockName, Result, Tries};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The tries of one who waits.
pub(crate) struct Waiter<'e> {
    engine: &'e SqlLock,
    claim: Claim,
    /// It was turned away by the server itself: a holder of this client that has released is nobody to look for.
    was_turned_away: AtomicBool,
    /// It asks, or has asked: of the waiters of one name in a client only the first does.
    has_begun: AtomicBool,
    /// Taken before it asks for the first time where somebody listens already, or when it begins to.
    place: OnceLock<Arc<dyn Place>>,
    /// It has listened since before it asked, and this is what it met: there is no need to ask again.
    met: Mutex<Option<Attempt>>,
    ear: Mutex<Option<Box<dyn Hint>>>,
}

impl<'e> Waiter<'e> {
    pub(crate) fn new(engine: &'e SqlLock, claim: &Claim) -> Self {
        Self {
            engine,
            claim: claim.clone(),
            was_turned_away: AtomicBool::new(false),
            has_begun: AtomicBool::new(false),
            place: OnceLock::new(),
            met: Mutex::default(),
            ear: Mutex::default(),
        }
    }

    /// Takes a place if there are any and somebody listens: with an ear that hears everything from here on.
    fn settle(&self) -> Option<Box<dyn Hint>> {
        let place = self.engine.table.place(&self.claim)?;
        let ear = place.ear();
        let _ = self.place.set(place);
        ear
    }

    /// Waits until the lock is taken, or is handed on.
    pub(crate) async fn acquire(&self) -> Result<Grant> {
        let hints: Option<&dyn Hints> = self.engine.table.hints().is_some().then_some(self);
        self.engine.polling.acquire(self, hints, &self.claim).await
    }

    /// What was handed on; none if it is to be asked for.
    ///
    /// It was handed on after that request was worked off of which whoever released had heard, so its time counts
    /// from before that was sent: never from when the news came, before which any time may have passed. Where much
    /// of the time would be gone, or none is ever added, the same is asked for once more, which counts it anew.
    fn take(&self, claim: &Claim, place: &Arc<dyn Place>) -> Option<Grant> {
        let handed = place.take()?;
        let sent_at = handed.sent_at.filter(|sent_at| claim.now().since(*sent_at) < claim.ttl() / 2)?;
        claim.renews().then(|| self.engine.granted(claim, Some(place), sent_at, handed.token))
    }
}

fn taken<T>(place: &Mutex<Option<T>>) -> Option<T> {
    place.lock().unwrap_or_else(PoisonError::into_inner).take()
}

#[async_trait]
impl Tries for Waiter<'_> {
    async fn try_once(&self, claim: &Claim) -> Result<Attempt> {
        if !self.has_begun.swap(true, Ordering::Relaxed) {
            let ear = self.settle();
            *self.ear.lock().unwrap_or_else(PoisonError::into_inner) = ear;
        }
        let place = self.place.get().filter(|_| claim.id() == self.claim.id());
        if let Some(place) = place.filter(|place| place.is_handed()) {
            drop(taken(&self.met));
            if let Some(grant) = self.take(claim, place) {
                return Ok(Attempt::Granted(grant));
            }
        }
        if let Some(met) = taken(&self.met) {
            return Ok(met);
        }
        // Whoever tells of itself does so by the statement that asks. Without a place the first asks for nothing to be
        // told, since it is asked again once there is somebody who listens; nor where the lock is likely to be free, since
        // who waits for nothing asks together with others.
        let again = self.was_turned_away.load(Ordering::Relaxed);
        let tells = again || (place.is_some() && self.engine.table.is_contended(claim.name()));
        let outcome = self.engine.attempt(claim, tells, place, again).await;
        if let Ok(Attempt::Contended { retry_after, holder, .. }) = &outcome {
            self.was_turned_away.store(true, Ordering::Relaxed);
            let heard_all = self.ear.lock().unwrap_or_else(PoisonError::into_inner).is_some();
            if heard_all && place.is_some_and(|place| place.is_told()) {
                let met = Attempt::contended(*retry_after, holder.clone());
                *self.met.lock().unwrap_or_else(PoisonError::into_inner) = Some(met);
            }
        }
        outcome.map_err(|e| e.with_engine(self.engine.table.engine()).with_name(claim.name()))
    }

    // It is not said to be queued: a lock that runs out, or is freed for all, is heard of by the ear alone.
    async fn handed(&self) {
        match self.place.get() {
            Some(place) => place.handed().await,
            None => std::future::pending().await,
        }
    }
}

#[async_trait]
impl Hints for Waiter<'_> {
    async fn listen(&self, name: &LockName) -> Result<Box<dyn Hint>> {
        if let Some(ear) = taken(&self.ear) {
            return Ok(ear);
        }
        drop(taken(&self.met));
        let Some(hints) = self.engine.table.hints() else { return std::future::pending().await };
        let ear = hints.listen(name).await?;
        if self.place.get().is_none() {
            // The ear was there before, so nothing is missed by that of the place being dropped.
            drop(self.settle());
        }
        Ok(ear)
    }
}
