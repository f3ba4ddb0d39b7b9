//! One who waits for a lock: asking for it, and being handed it.

use crate::engine::SqlLock;
use crate::table::{Handed, Place};
use async_trait::async_trait;
use fencelock_core::{Attempt, Claim, ErrorKind, Grant, Hint, Hints, LockName, Result, Tries};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio::sync::Notify;

/// The tries of one who waits.
pub(crate) struct Waiter<'e> {
    engine: &'e SqlLock,
    claim: Claim,
    /// It was turned away by the server itself: a holder of this client that has released is nobody to look for.
    was_turned_away: AtomicBool,
    /// Taken at once where somebody listens already, or when it begins to.
    place: OnceLock<Arc<dyn Place>>,
    placed: Notify,
    /// It has listened since before it asked, and this is what it met: there is no need to ask again.
    met: Mutex<Option<Attempt>>,
    ear: Mutex<Option<Box<dyn Hint>>>,
    /// A request is under way, which must not be dropped.
    asking: AtomicBool,
    rests: Notify,
}

impl<'e> Waiter<'e> {
    pub(crate) fn new(engine: &'e SqlLock, claim: &Claim) -> Self {
        let waiter = Self {
            engine,
            claim: claim.clone(),
            was_turned_away: AtomicBool::new(false),
            place: OnceLock::new(),
            placed: Notify::new(),
            met: Mutex::default(),
            ear: Mutex::default(),
            asking: AtomicBool::new(false),
            rests: Notify::new(),
        };
        let ear = waiter.settle();
        *waiter.ear.lock().unwrap_or_else(PoisonError::into_inner) = ear;
        waiter
    }

    /// Takes a place if there are any and somebody listens: with an ear that hears everything from here on.
    fn settle(&self) -> Option<Box<dyn Hint>> {
        let place = self.engine.table.place(&self.claim)?;
        let ear = place.ear();
        if self.place.set(place).is_ok() {
            self.placed.notify_one();
        }
        ear
    }

    /// Waits until the lock is taken, or is handed on.
    pub(crate) async fn acquire(&self, claim: &Claim) -> Result<Grant> {
        let hints: Option<&dyn Hints> = self.engine.table.hints().is_some().then_some(self);
        let polled = self.engine.polling.acquire(self, hints, claim);
        tokio::pin!(polled);
        loop {
            let handed = tokio::select! {
                biased;
                outcome = &mut polled => return outcome,
                handed = self.handed() => handed,
            };
            // Made while it still leads those who wait in this client, so that the next sees it held.
            if let Some(grant) = self.take(claim, handed).await? {
                return Ok(grant);
            }
        }
    }

    /// Ends when the lock is handed on, and no request is under way, whose answer would say the same.
    async fn handed(&self) -> (Handed, Arc<dyn Place>) {
        let place = loop {
            match self.place.get() {
                Some(place) => break place,
                None => self.placed.notified().await,
            }
        };
        let handed = place.handed().await;
        loop {
            let rests = self.rests.notified();
            tokio::pin!(rests);
            rests.as_mut().enable();
            if !self.asking.load(Ordering::SeqCst) {
                return (handed, Arc::clone(place));
            }
            rests.await;
        }
    }

    /// Takes what was handed on; none if it is to be asked for again.
    ///
    /// It was handed on after that request was worked off of which whoever released had heard, so its time counts
    /// from before that was sent: never from when the news came, before which any time may have passed. Where much
    /// of the time would be gone, or none is ever added, the same is asked for once more, which counts it anew.
    async fn take(&self, claim: &Claim, (handed, place): (Handed, Arc<dyn Place>)) -> Result<Option<Grant>> {
        if let Some(sent_at) = handed.sent_at
            && claim.renews()
            && claim.now().since(sent_at) < claim.ttl() / 2
        {
            return Ok(Some(self.engine.granted(claim, Some(&place), sent_at, handed.token)));
        }
        match self.engine.attempt(claim, true, Some(&place), false).await {
            Ok(Attempt::Granted(grant)) => Ok(Some(grant)),
            Err(e) if e.kind() != ErrorKind::Unavailable => {
                Err(e.with_engine(self.engine.table.engine()).with_name(claim.name()))
            }
            // It comes up again when it is asked for next.
            _ => {
                place.ask_again();
                Ok(None)
            }
        }
    }
}

/// Says when a request has ended, however it ended.
struct Asking<'w>(&'w AtomicBool, &'w Notify);

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
        self.1.notify_waiters();
    }
}

fn taken<T>(place: &Mutex<Option<T>>) -> Option<T> {
    place.lock().unwrap_or_else(PoisonError::into_inner).take()
}

#[async_trait]
impl Tries for Waiter<'_> {
    async fn try_once(&self, claim: &Claim) -> Result<Attempt> {
        if let Some(met) = taken(&self.met) {
            return Ok(met);
        }
        self.asking.store(true, Ordering::SeqCst);
        let _asking = Asking(&self.asking, &self.rests);
        let place = self.place.get();
        // Whoever tells of itself does so by the statement that asks.
        let looks = self.was_turned_away.load(Ordering::Relaxed) && !place.is_some_and(|place| place.can_be_told());
        let outcome = self.engine.attempt(claim, true, place, looks).await;
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
