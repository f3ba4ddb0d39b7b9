//! To whom a lease may pass on: who waits in a client, in the order in which they came.

use super::{Won, hand_on};
use crate::ledger::{Ledger, OpenEntry};
use crate::sync::lock;
use crate::{AcquireOptions, Claim, LockName};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::oneshot;

/// The waiters of one client that let a lease pass on. Cloning gives the same.
#[derive(Clone, Default)]
pub(crate) struct Cohorts(Arc<Mutex<Waiting>>);

#[derive(Default)]
struct Waiting {
    names: HashMap<LockName, BTreeMap<u64, Seat>>,
    numbers: u64,
    closed: bool,
}

/// One waiter, as whoever passes on sees it.
pub(super) struct Seat {
    fits: Fits,
    /// It comes at most as the so manieth.
    most: u32,
    hand: oneshot::Sender<Parcel>,
}

/// What the server was told of a hold, and would be told of the next.
#[derive(PartialEq, Eq)]
struct Fits {
    ttl: Duration,
    lock_delay: Duration,
    note: Option<Arc<str>>,
}

impl Fits {
    fn of(claim: &Claim) -> Self {
        Self { ttl: claim.ttl(), lock_delay: claim.lock_delay(), note: claim.note().cloned() }
    }
}

impl Seat {
    /// Hands it over, unless the waiter has gone.
    pub(super) fn hand(self, won: Won, ledger: &Ledger) -> Result<(), Won> {
        let parcel = Parcel { won: Some(won), ledger: ledger.clone(), _open: ledger.entry() };
        // The waiter's waker runs here, outside of all locks.
        match self.hand.send(parcel) {
            Ok(()) => Ok(()),
            Err(mut back) => back.won.take().map_or(Ok(()), Err),
        }
    }
}

impl Cohorts {
    /// Takes the last place for the claim's name; none if the call does not let a lease pass on.
    pub(crate) fn join(&self, claim: &Claim, options: &AcquireOptions) -> Option<Box<Place>> {
        let most = options.reserve();
        if most == 0 {
            return None;
        }
        let (hand, handed) = oneshot::channel();
        let mut waiting = lock(&self.0);
        waiting.numbers += 1;
        let number = waiting.numbers;
        let seat = Seat { fits: Fits::of(claim), most, hand };
        waiting.names.entry(claim.name().clone()).or_default().insert(number, seat);
        drop(waiting);
        Some(Box::new(Place { cohorts: self.clone(), name: claim.name().clone(), number, handed }))
    }

    /// The first waiter whom the hold of `server` fits as its `pass`-th holder after the first.
    pub(super) fn next(&self, server: &Claim, pass: u32) -> Option<Seat> {
        let fits = Fits::of(server);
        let mut waiting = lock(&self.0);
        if waiting.closed {
            return None;
        }
        let seats = waiting.names.get(server.name())?;
        let number =
            seats.iter().find(|(_, seat)| seat.most >= pass && seat.fits == fits).map(|(number, _)| *number)?;
        waiting.leave(server.name(), number)
    }

    /// From now on nothing is passed on.
    pub(crate) fn close(&self) {
        lock(&self.0).closed = true;
    }
}

impl Waiting {
    fn leave(&mut self, name: &LockName, number: u64) -> Option<Seat> {
        let seats = self.names.get_mut(name)?;
        let seat = seats.remove(&number);
        if seats.is_empty() {
            self.names.remove(name);
        }
        seat
    }
}

/// A waiter's own end; dropping it leaves, and what was handed over meanwhile goes on to the next.
pub(crate) struct Place {
    cohorts: Cohorts,
    name: LockName,
    number: u64,
    handed: oneshot::Receiver<Parcel>,
}

impl Place {
    /// Ends when something is handed over; never, if that was before.
    async fn handed(&mut self) -> Parcel {
        if self.handed.is_terminated() {
            return std::future::pending().await;
        }
        match (&mut self.handed).await {
            Ok(parcel) => parcel,
            // Closed without anything to hand over: the call goes its own way.
            Err(_) => std::future::pending().await,
        }
    }

    /// What is handed over to whoever has a place; to nobody else, ever.
    pub(crate) async fn of(place: &mut Option<Box<Self>>) -> Parcel {
        match place {
            Some(place) => place.handed().await,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Outside the lock: its sender is dropped with it, which wakes.
        let seat = lock(&self.cohorts.0).leave(&self.name, self.number);
        drop(seat);
    }
}

/// A lease on its way to a waiter. Dropped on the way, it goes on to the next or back to the server.
pub(crate) struct Parcel {
    won: Option<Won>,
    ledger: Ledger,
    /// Whoever closes the client waits until it has come to somebody, or is to go back.
    _open: OpenEntry,
}

impl Parcel {
    /// What it is, to be held by `claim`.
    pub(crate) fn open(mut self, claim: Claim) -> Option<Won> {
        self.won.take().map(|won| won.owned_by(claim))
    }
}

impl Drop for Parcel {
    fn drop(&mut self) {
        if let Some(won) = self.won.take() {
            hand_on(won, &self.ledger);
        }
    }
}
