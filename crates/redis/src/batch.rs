//! Renewal of all holds of a client, together.

use crate::failure::Next;
use crate::link::lock;
use crate::store::{Held, Store};
use fencelock_core::{LossReason, Validity};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

/// The most holds in one command: it keeps the server busy for about a third of a millisecond.
const MOST: usize = 256;

/// The holds to be kept alive, and the task that does so while there are any.
#[derive(Clone, Default)]
pub(crate) struct Batcher(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    earlier: Notify,
}

#[derive(Default)]
struct State {
    entries: HashMap<u64, Entry>,
    /// By class of ttl, so that a hold with a long one does not share a short one's limits: when due, and which.
    queues: BTreeMap<u32, BTreeSet<(Instant, u64)>>,
    next: u64,
    running: bool,
}

struct Entry {
    validity: Validity,
    held: Arc<Held>,
    /// Where it stands in its queue; nowhere while it is being sent.
    due: Option<Instant>,
    gone: oneshot::Sender<LossReason>,
}

/// Taken out of the registry when the hold's guardian ends.
struct Registered<'a>(&'a Batcher, u64);

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        lock(&self.0.0.state).remove(self.1);
    }
}

/// Holds whose ttl is within a factor of two.
fn class(ttl: Duration) -> u32 {
    u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).max(1).ilog2()
}

/// The shortest ttl of a class.
fn shortest(class: u32) -> Duration {
    Duration::from_millis(1 << class.min(63))
}

/// How long a hold that is due waits for others: well within the tenth of its ttl after which it is overdue.
fn patience(class: u32) -> Duration {
    shortest(class) / 20
}

/// How long before it is due a hold goes along with others: half the time between two renewals.
fn along(class: u32) -> Duration {
    shortest(class) / 6
}

impl State {
    fn enqueue(&mut self, key: u64, due: Instant) {
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.due = Some(due);
            self.queues.entry(class(entry.validity.ttl())).or_default().insert((due, key));
        }
    }

    fn remove(&mut self, key: u64) -> Option<Entry> {
        let entry = self.entries.remove(&key)?;
        if let Some(due) = entry.due {
            // Its ttl may have been extended since, so its class is not known for sure.
            self.queues.retain(|_, queue| {
                queue.remove(&(due, key));
                !queue.is_empty()
            });
        }
        Some(entry)
    }

    /// Takes what leaves now out of the queues; says when the next leaves.
    fn take(&mut self, now: Instant) -> (Vec<Batch>, Option<Instant>) {
        let mut taken = Vec::new();
        let mut next: Option<Instant> = None;
        for (class, queue) in &mut self.queues {
            if queue.first().is_some_and(|(due, _)| *due + patience(*class) <= now) {
                let later = queue.split_off(&(now + along(*class), u64::MAX));
                let leaving: Vec<_> = std::mem::replace(queue, later)
                    .into_iter()
                    .filter_map(|(_, key)| {
                        let entry = self.entries.get_mut(&key)?;
                        entry.due = None;
                        Some((key, entry.validity.clone(), Arc::clone(&entry.held)))
                    })
                    .collect();
                taken.push(leaving);
            }
            if let Some((due, _)) = queue.first() {
                let leaves = *due + patience(*class);
                next = Some(next.map_or(leaves, |next| next.min(leaves)));
            }
        }
        self.queues.retain(|_, queue| !queue.is_empty());
        (taken, next)
    }
}

impl Batcher {
    /// Keeps the hold alive until it is gone; then says why.
    ///
    /// # Cancel safety
    /// Dropping the future takes the hold out; a renewal under way may still arrive.
    pub(crate) async fn keep_alive(&self, store: &Arc<Store>, held: &Arc<Held>, validity: &Validity) -> LossReason {
        let (gone, told) = oneshot::channel();
        let due = Instant::now() + validity.renewal_due().since(validity.now());
        let (key, start) = {
            let mut state = lock(&self.0.state);
            state.next += 1;
            let key = state.next;
            let entry = Entry { validity: validity.clone(), held: Arc::clone(held), due: None, gone };
            state.entries.insert(key, entry);
            state.enqueue(key, due);
            (key, !std::mem::replace(&mut state.running, true))
        };
        let _registered = Registered(self, key);
        if start {
            tokio::spawn(run(self.clone(), Arc::clone(store)));
        } else {
            self.0.earlier.notify_one();
        }
        // The sender goes only with the runtime.
        told.await.unwrap_or(LossReason::SessionEnded)
    }

    /// How many holds are kept alive.
    pub(crate) fn len(&self) -> usize {
        lock(&self.0.state).entries.len()
    }

    fn gone(&self, key: u64, reason: LossReason) {
        let entry = lock(&self.0.state).remove(key);
        if let Some(entry) = entry {
            let _ = entry.gone.send(reason);
        }
    }
}

/// The task: ends when nobody is left.
async fn run(batcher: Batcher, store: Arc<Store>) {
    // Whatever ends this task, the next hold starts another.
    let _running = Running(&batcher);
    loop {
        let next = {
            let mut state = lock(&batcher.0.state);
            if state.entries.is_empty() {
                state.running = false;
                return;
            }
            let (taken, next) = state.take(Instant::now());
            drop(state);
            for class in taken {
                for batch in batches(class, store.router.is_cluster()) {
                    // Each by itself: one that hangs holds up no other.
                    tokio::spawn(send(batcher.clone(), Arc::clone(&store), batch));
                }
            }
            next
        };
        let next = next.unwrap_or_else(|| Instant::now() + Duration::from_secs(1));
        tokio::select! {
            () = tokio::time::sleep_until(next) => {}
            () = batcher.0.earlier.notified() => {}
        }
    }
}

struct Running<'a>(&'a Batcher);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.0.state);
        if !state.entries.is_empty() {
            state.running = false;
        }
    }
}

type Batch = Vec<(u64, Validity, Arc<Held>)>;

/// In a Cluster one command reaches one slot only.
fn batches(mut leaving: Batch, by_slot: bool) -> Vec<Batch> {
    let slot = |held: &Held| if by_slot { held.keys.slot() } else { 0 };
    if by_slot {
        leaving.sort_by_cached_key(|(_, _, held)| slot(held));
    }
    let mut batches: Vec<(u16, Batch)> = Vec::new();
    for renewal in leaving {
        let at = slot(&renewal.2);
        match batches.last_mut() {
            Some((slot, batch)) if *slot == at && batch.len() < MOST => batch.push(renewal),
            _ => batches.push((at, vec![renewal])),
        }
    }
    batches.into_iter().map(|(_, batch)| batch).collect()
}

fn send(batcher: Batcher, store: Arc<Store>, batch: Batch) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(sent(batcher, store, batch))
}

async fn sent(batcher: Batcher, store: Arc<Store>, mut batch: Batch) {
    batch.retain(|(key, validity, _)| {
        let held = validity.is_held();
        if !held {
            batcher.gone(*key, LossReason::Expired);
        }
        held
    });
    let limit = batch.iter().map(|(_, validity, _)| validity.request_limit()).min().unwrap_or_default();
    let limit = limit.min(store.config.request_timeout);
    let left: Vec<_> = batch.iter().map(|(_, validity, _)| validity.now()).collect();
    let holds: Vec<_> = batch.iter().map(|(_, validity, held)| (&**held, validity.server_ttl())).collect();
    let outcome = store.renew_all(&holds, limit).await;
    match outcome {
        Ok(renewed) => {
            for ((key, validity, held), (left_at, renewed)) in batch.iter().zip(left.into_iter().zip(renewed)) {
                if !renewed {
                    batcher.gone(*key, LossReason::Revoked);
                    continue;
                }
                validity.renewed(left_at);
                tracing::debug!(target: "fencelock", event = "renewed", name = %held.claim.name(),
                    claim = %held.claim.id(), "renewed");
                let due = Instant::now() + validity.renewal_due().since(validity.now());
                lock(&batcher.0.state).enqueue(*key, due);
            }
        }
        // In the middle of a slot's move a single key is found, and several are not.
        Err(failure) if failure.next == Next::TryAgain && batch.len() > 1 => {
            for renewal in batch {
                tokio::spawn(send(batcher.clone(), Arc::clone(&store), vec![renewal]));
            }
            return;
        }
        Err(failure) => {
            for (key, validity, _) in &batch {
                validity.doubt(&failure.error);
                // Its patience comes on top, so it is asked again within a tenth of its ttl.
                let due = Instant::now() + validity.retry_pause() / 2;
                lock(&batcher.0.state).enqueue(*key, due);
            }
        }
    }
    batcher.0.earlier.notify_one();
}
