//! Renewal of all holds of a client, together: one command to each node for many of them.

use crate::set::{Set, lock};
use fencelock_core::{FencingToken, LossReason, Renewal, Validity};
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
    /// By class of ttl, so that a hold with a long one does not share a short one's limits: when due, and which.
    queues: BTreeMap<u32, BTreeSet<(Instant, u64)>>,
    next: u64,
    running: bool,
}

struct Entry {
    validity: Validity,
    token: FencingToken,
    /// Where it stands in its queue; nowhere while it is being sent.
    due: Option<Instant>,
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

    fn remove(&mut self, key: u64) {
        if let Some(due) = self.entries.remove(&key).and_then(|entry| entry.due) {
            // Its ttl may have been extended since, so its class is not known for sure.
            self.queues.retain(|_, queue| {
                queue.remove(&(due, key));
                !queue.is_empty()
            });
        }
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
                        Some((key, entry.validity.clone(), entry.token))
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
    /// Keeps the hold alive from here on.
    pub(crate) fn keep_alive(&self, set: &Arc<Set>, token: FencingToken, validity: &Validity) -> KeptAlive<'_> {
        if !validity.renews() {
            return KeptAlive { batcher: self, key: None };
        }
        let due = Instant::now() + validity.renewal_due().since(validity.now());
        let mut state = lock(&self.0.state);
        state.next += 1;
        let key = state.next;
        let entry = Entry { validity: validity.clone(), token, due: None, gone: None, guardian: None };
        state.entries.insert(key, entry);
        state.enqueue(key, due);
        if std::mem::replace(&mut state.running, true) {
            self.0.earlier.notify_one();
        } else {
            tokio::spawn(run(self.clone(), Arc::clone(set)));
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
async fn run(batcher: Batcher, set: Arc<Set>) {
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
                for batch in class.chunks(MOST) {
                    // Each by itself: one that hangs holds up no other.
                    tokio::spawn(send(batcher.clone(), Arc::clone(&set), batch.to_vec()));
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

type Batch = Vec<(u64, Validity, FencingToken)>;

async fn send(batcher: Batcher, set: Arc<Set>, mut batch: Batch) {
    batch.retain(|(key, validity, _)| {
        let held = validity.is_held();
        if !held {
            batcher.gone(*key, LossReason::Expired);
        }
        held
    });
    let limit = batch.iter().map(|(_, validity, _)| validity.request_limit()).min().unwrap_or_default();
    let limit = limit.min(set.config.request_timeout);
    let left: Vec<_> = batch.iter().map(|(_, validity, _)| validity.now()).collect();
    let holds: Vec<_> =
        batch.iter().map(|(_, validity, token)| (validity.claim(), *token, validity.server_ttl())).collect();
    let outcome = set.renew_all(&holds, limit).await;
    for ((key, validity, _), (left_at, verdict)) in batch.iter().zip(left.into_iter().zip(outcome.verdicts)) {
        let due = match verdict {
            Some(Renewal::Renewed) => {
                validity.renewed(left_at);
                validity.renewal_due().since(validity.now())
            }
            Some(Renewal::Refused) => {
                batcher.gone(*key, LossReason::Revoked);
                continue;
            }
            _ => {
                validity.doubt(&format_args!(
                    "{} of {} nodes answered: no majority renewed it",
                    outcome.answered,
                    set.size()
                ));
                // Its patience comes on top, so it is asked again within a tenth of its ttl.
                validity.retry_pause() / 2
            }
        };
        lock(&batcher.0.state).enqueue(*key, Instant::now() + due);
    }
    batcher.0.earlier.notify_one();
}
