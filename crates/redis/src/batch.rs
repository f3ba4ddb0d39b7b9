//! Renewal of all holds of a client, together.

use crate::failure::Next;
use crate::link::lock;
use crate::store::Store;
use fencelock_core::{FencingToken, LossReason, Moment, Validity};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::Notify;
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
    /// When each is due, on the holds' clock, and which.
    queues: BTreeMap<Group, BTreeSet<(Moment, u64)>>,
    next: u64,
    running: bool,
}

/// Which holds share a command: those of like ttl, so that a long one is not
/// under a short one's limits, and in a Cluster those of one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    /// Holds whose ttl is within a factor of two.
    class: u32,
    slot: u16,
}

struct Entry {
    validity: Validity,
    token: FencingToken,
    slot: u16,
    /// Where it stands in the queues; nowhere while it is being sent.
    place: Option<(Group, Moment)>,
    /// Set once it is over, and who is then to be told.
    gone: Option<LossReason>,
    guardian: Option<Waker>,
}

/// Ends when the hold is gone, with the reason. Dropping it takes the hold out;
/// a renewal under way may still arrive.
#[must_use = "the hold is renewed for as long as this lives"]
pub(crate) struct KeptAlive<'a> {
    batcher: &'a Batcher,
    /// None for a fixed lease, which nobody renews.
    key: Option<u64>,
}

impl Future for KeptAlive<'_> {
    type Output = LossReason;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<LossReason> {
        let Some(key) = self.key else { return Poll::Pending };
        let mut state = lock(&self.batcher.0.state);
        let Some(entry) = state.entries.get_mut(&key) else { return Poll::Ready(LossReason::SessionEnded) };
        if let Some(reason) = entry.gone {
            return Poll::Ready(reason);
        }
        if !entry.guardian.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            entry.guardian = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for KeptAlive<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            lock(&self.batcher.0.state).remove(key);
        }
    }
}

impl Group {
    fn of(entry: &Entry) -> Self {
        let millis = u64::try_from(entry.validity.ttl().as_millis()).unwrap_or(u64::MAX);
        Self { class: millis.max(1).ilog2(), slot: entry.slot }
    }

    /// How long a hold that is due waits for others: well within the tenth of its ttl after which it is overdue.
    fn patience(self) -> Duration {
        Duration::from_millis(1 << self.class.min(63)) / 20
    }
}

impl State {
    fn enqueue(&mut self, key: u64, due: Moment) {
        if let Some(entry) = self.entries.get_mut(&key) {
            let group = Group::of(entry);
            entry.place = Some((group, due));
            self.queues.entry(group).or_default().insert((due, key));
        }
    }

    fn remove(&mut self, key: u64) {
        if let Some((group, due)) = self.entries.remove(&key).and_then(|entry| entry.place)
            && let Some(queue) = self.queues.get_mut(&group)
        {
            queue.remove(&(due, key));
            if queue.is_empty() {
                self.queues.remove(&group);
            }
        }
    }

    /// Takes what leaves now out of the queues; says when the next leaves, and by whose clock.
    ///
    /// A command that leaves anyway takes along as many as it can hold, those that
    /// are due soonest: so they fall into step, and none is sent half empty.
    fn take(&mut self) -> (Vec<Batch>, Option<(Moment, Validity)>) {
        let Self { entries, queues, .. } = self;
        let mut taken = Vec::new();
        let mut next: Option<(Moment, Validity)> = None;
        for (group, queue) in queues.iter_mut() {
            let Some(validity) = queue.first().and_then(|(_, key)| entries.get(key)).map(|e| e.validity.clone()) else {
                continue;
            };
            let now = validity.now();
            let leaves = |queue: &BTreeSet<(Moment, u64)>| queue.first().map(|(due, _)| due.plus(group.patience()));
            while leaves(queue).is_some_and(|leaves| leaves <= now) {
                let mut batch = Batch::new();
                while batch.len() < MOST
                    && let Some((_, key)) = queue.pop_first()
                {
                    if let Some(entry) = entries.get_mut(&key) {
                        entry.place = None;
                        batch.push((key, entry.validity.clone(), entry.token));
                    }
                }
                taken.push(batch);
            }
            if let Some(leaves) = leaves(queue)
                && next.as_ref().is_none_or(|(next, _)| leaves < *next)
            {
                next = Some((leaves, validity));
            }
        }
        queues.retain(|_, queue| !queue.is_empty());
        (taken, next)
    }
}

impl Batcher {
    /// Keeps the hold alive from here on.
    pub(crate) fn keep_alive(&self, store: &Arc<Store>, token: FencingToken, validity: &Validity) -> KeptAlive<'_> {
        if !validity.renews() {
            return KeptAlive { batcher: self, key: None };
        }
        let slot = if store.router.is_cluster() { store.keys.of(validity.claim().name()).slot() } else { 0 };
        let mut state = lock(&self.0.state);
        state.next += 1;
        let key = state.next;
        let entry = Entry { validity: validity.clone(), token, slot, place: None, gone: None, guardian: None };
        state.entries.insert(key, entry);
        state.enqueue(key, validity.renewal_due());
        if std::mem::replace(&mut state.running, true) {
            self.0.earlier.notify_one();
        } else {
            tokio::spawn(run(self.clone(), Arc::clone(store)));
        }
        drop(state);
        KeptAlive { batcher: self, key: Some(key) }
    }

    /// How many holds are kept alive.
    pub(crate) fn len(&self) -> usize {
        lock(&self.0.state).entries.len()
    }

    fn gone(&self, key: u64, reason: LossReason) {
        let guardian = lock(&self.0.state).entries.get_mut(&key).and_then(|entry| {
            entry.gone = Some(reason);
            entry.guardian.take()
        });
        if let Some(guardian) = guardian {
            guardian.wake();
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
            let (taken, next) = state.take();
            drop(state);
            for batch in taken {
                // Each by itself: one that hangs holds up no other.
                tokio::spawn(send(batcher.clone(), Arc::clone(&store), batch));
            }
            next
        };
        // By the holds' own clock, which goes on while the machine is suspended and timers do not.
        let next = async {
            match next {
                Some((leaves, validity)) => validity.sleep_until(leaves).await,
                None => tokio::time::sleep(Duration::from_secs(1)).await,
            }
        };
        tokio::select! {
            () = next => {}
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

type Batch = Vec<(u64, Validity, FencingToken)>;

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
    let holds: Vec<_> =
        batch.iter().map(|(_, validity, token)| (validity.claim(), *token, validity.server_ttl())).collect();
    let outcome = store.renew(&holds, Instant::now() + limit).await;
    match outcome {
        Ok(renewed) => {
            let mut due = Vec::with_capacity(batch.len());
            for ((key, validity, _), (left_at, renewed)) in batch.iter().zip(left.into_iter().zip(renewed)) {
                if renewed {
                    validity.renewed(left_at);
                    due.push((*key, validity.renewal_due()));
                } else {
                    batcher.gone(*key, LossReason::Revoked);
                }
            }
            let mut state = lock(&batcher.0.state);
            due.into_iter().for_each(|(key, due)| state.enqueue(key, due));
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
                let due = validity.now().plus(validity.retry_pause() / 2);
                lock(&batcher.0.state).enqueue(*key, due);
            }
        }
    }
    batcher.0.earlier.notify_one();
}
