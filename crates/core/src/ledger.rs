//! The undo ledger: what a client still has to make good.

use crate::Claim;
use crate::hold::Releasing;
use crate::pursuit::Call;
use crate::rescue::Rescue;
use crate::sync::lock;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot};

pub(crate) type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

pub(crate) enum Errand {
    /// Let the requests of a given-up call be answered, then undo its claim.
    Settle(Call, Claim),
    /// Undo a claim, and tell who waits for it.
    Undo(Claim, Option<oneshot::Sender<()>>),
    /// Undo a claim of a session once nobody may rely on its hold any more.
    UndoAfter(Claim, Duration),
    /// Release the hold of a dropped guard.
    Release(Releasing),
    /// Finish what a caller who has gone had begun.
    Finish(Boxed<()>),
}

/// The way to the reaper; sending never blocks and works on any thread.
#[derive(Clone)]
pub(crate) struct Ledger {
    errands: mpsc::UnboundedSender<Entry>,
    open: Arc<Open>,
}

/// A ledger that does not keep the reaper alive.
#[derive(Clone)]
pub(crate) struct WeakLedger {
    errands: mpsc::WeakUnboundedSender<Entry>,
    open: Arc<Open>,
}

/// An errand, open until the second part is dropped.
pub(crate) struct Entry(pub(crate) Errand, pub(crate) OpenEntry);

/// How many entries are not worked off.
#[derive(Default)]
struct Open {
    count: Mutex<usize>,
    none: Notify,
    /// Not entered yet: what still lies with its caller.
    rescue: Arc<Rescue>,
}

/// Something that is not done yet, for as long as this lives.
pub(crate) struct OpenEntry(Arc<Open>);

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
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<Entry>) {
        let (errands, inbox) = mpsc::unbounded_channel();
        (Self { errands, open: Arc::default() }, inbox)
    }

    pub(crate) fn rescue(&self) -> &Arc<Rescue> {
        &self.open.rescue
    }

    pub(crate) fn downgrade(&self) -> WeakLedger {
        WeakLedger { errands: self.errands.downgrade(), open: Arc::clone(&self.open) }
    }

    /// Counts something as open until what is returned is dropped.
    pub(crate) fn entry(&self) -> OpenEntry {
        *lock(&self.open.count) += 1;
        OpenEntry(Arc::clone(&self.open))
    }

    pub(crate) fn send(&self, errand: Errand) {
        // Without its runtime the client can undo nothing: the lease runs out instead.
        let _ = self.errands.send(Entry(errand, self.entry()));
    }

    pub(crate) fn undo(&self, claim: Claim) {
        self.send(Errand::Undo(claim, None));
    }

    /// Undoes `claim`; ends when that is done, or when nobody is left to do it.
    pub(crate) async fn undone(&self, claim: Claim) {
        let (done, is_done) = oneshot::channel();
        self.send(Errand::Undo(claim, Some(done)));
        let _ = is_done.await;
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

impl WeakLedger {
    /// The ledger, if anybody still has it.
    pub(crate) fn upgrade(&self) -> Option<Ledger> {
        self.errands.upgrade().map(|errands| Ledger { errands, open: Arc::clone(&self.open) })
    }

    pub(crate) fn undo(&self, claim: Claim) {
        if let Some(ledger) = self.upgrade() {
            ledger.undo(claim);
        }
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").field("open", &self.open()).finish()
    }
}
