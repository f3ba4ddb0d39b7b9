//! Renewal of all holds of a client, together.

use crate::sync::lock;
use crate::{Claim, Error, FencingToken, LossReason, Moment, Renewal, Validity};
use async_trait::async_trait;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::Notify;

/// The most holds in one request: it keeps a server busy for about a third of a millisecond.
const MOST: usize = 256;

/// What renews many holds in one request.
#[async_trait]
pub trait RenewsTogether: Send + Sync + 'static {
    /// Only holds of the same kind share a request. The default knows one kind.
    fn kind(&self, _claim: &Claim) -> u16 {
        0
    }

    /// The longest that a request may take, whatever the ttl.
    fn longest(&self) -> Duration;

    /// Renews them all, within `limit`: each if its claim still holds the lock with
    /// its token. As [`Renew::renew`](crate::Renew::renew) for each of them.
    async fn renew(&self, holds: &[Renewing<'_>], limit: Duration) -> Renewed;
}

/// A hold that is to be renewed.
#[derive(Clone, Copy, Debug)]
pub struct Renewing<'a> {
    /// Whose it is.
    pub claim: &'a Claim,
    /// Under which token.
    pub token: FencingToken,
    /// For how long the server is to keep it.
    pub server_ttl: Duration,
}

/// What became of a request that renews many.
#[derive(Debug)]
#[non_exhaustive]
pub enum Renewed {
    /// For each hold what is known, in their order, and why nothing is known of the others.
    Told(Vec<Option<Renewal>>, Option<Error>),
    /// They cannot be renewed together just now: each is to be asked for by itself, at once.
    Apart,
}

/// The holds to be kept alive, and the task that does so while there are any.
/// Cloning gives the same.
///
/// A request that is due takes along those that are due next, of like ttl, so that
/// they fall into step and none is sent half empty. Each is sent by itself: one
/// that hangs holds up no other.
pub struct Renewals<R: RenewsTogether>(Arc<Shared<R>>);

struct Shared<R> {
    by: Arc<R>,
    state: Mutex<State>,
    earlier: Notify,
}

#[derive(Default)]
struct State {
    entries: HashMap<u64, Entry>,
    /// When each is due, on the holds' clock, and which.
    queues: BTreeMap<Kind, BTreeSet<(Moment, u64)>>,
    next: u64,
    running: bool,
}

/// Which holds share a request: those of like ttl, so that a long one is not
/// under a short one's limits, and of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    /// Holds whose ttl is within a factor of two.
    class: u32,
    kind: u16,
}

struct Entry {
    validity: Validity,
    token: FencingToken,
    kind: u16,
    /// Where it stands in the queues; nowhere while it is being sent.
    place: Option<(Kind, Moment)>,
    /// Set once it is over, and who is then to be told.
    gone: Option<LossReason>,
    guardian: Option<Waker>,
}

/// Ends when the hold is gone, with the reason. Dropping it takes the hold out;
/// a renewal under way may still arrive.
#[must_use = "the hold is renewed for as long as this lives"]
struct KeptAlive<'a> {
    state: &'a Mutex<State>,
    key: u64,
}

impl Future for KeptAlive<'_> {
    type Output = LossReason;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<LossReason> {
        let mut state = lock(self.state);
        let Some(entry) = state.entries.get_mut(&self.key) else { return Poll::Ready(LossReason::SessionEnded) };
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
        let removed = lock(self.state).remove(self.key);
        drop(removed);
    }
}

impl Kind {
    fn of(entry: &Entry) -> Self {
        let millis = u64::try_from(entry.validity.ttl().as_millis()).unwrap_or(u64::MAX);
        Self { class: millis.max(1).ilog2(), kind: entry.kind }
    }

    /// How long a hold that is due waits for others: well within the tenth of its ttl after which it is overdue.
    fn patience(self) -> Duration {
        Duration::from_millis(1 << self.class.min(63)) / 20
    }
}

type Batch = Vec<(u64, Validity, FencingToken)>;

impl State {
    fn enqueue(&mut self, key: u64, due: Moment) {
        if let Some(entry) = self.entries.get_mut(&key) {
            let kind = Kind::of(entry);
            entry.place = Some((kind, due));
            self.queues.entry(kind).or_default().insert((due, key));
        }
    }

    fn remove(&mut self, key: u64) -> Option<Entry> {
        let entry = self.entries.remove(&key)?;
        if let Some((kind, due)) = entry.place
            && let Some(queue) = self.queues.get_mut(&kind)
        {
            queue.remove(&(due, key));
            if queue.is_empty() {
                self.queues.remove(&kind);
            }
        }
        Some(entry)
    }

    /// Takes what leaves now out of the queues; says when the next leaves, and by whose clock.
    ///
    /// A request that leaves anyway takes along as many as it can hold, those that
    /// are due soonest: so they fall into step, and none is sent half empty.
    fn take(&mut self) -> (Vec<Batch>, Option<(Moment, Validity)>) {
        let Self { entries, queues, .. } = self;
        let mut taken = Vec::new();
        let mut next: Option<(Moment, Validity)> = None;
        for (kind, queue) in queues.iter_mut() {
            let Some(validity) = queue.first().and_then(|(_, key)| entries.get(key)).map(|e| e.validity.clone()) else {
                continue;
            };
            let now = validity.now();
            let leaves = |queue: &BTreeSet<(Moment, u64)>| queue.first().map(|(due, _)| due.plus(kind.patience()));
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

impl<R: RenewsTogether> Renewals<R> {
    /// None yet; `by` renews them.
    pub fn new(by: Arc<R>) -> Self {
        Self(Arc::new(Shared { by, state: Mutex::default(), earlier: Notify::new() }))
    }

    /// Keeps the hold alive, and ends when it is gone, with the reason; never for a
    /// fixed lease. For [`Lease::keep_alive`](crate::Lease::keep_alive).
    ///
    /// # Cancel safety
    /// Dropping the future stops the renewals; one under way may still arrive.
    pub async fn keep_alive(&self, token: FencingToken, validity: &Validity) -> LossReason {
        if !validity.renews() {
            return std::future::pending().await;
        }
        let kind = self.0.by.kind(validity.claim());
        let kept = {
            let mut state = lock(&self.0.state);
            state.next += 1;
            let key = state.next;
            let entry = Entry { validity: validity.clone(), token, kind, place: None, gone: None, guardian: None };
            state.entries.insert(key, entry);
            state.enqueue(key, validity.renewal_due());
            if std::mem::replace(&mut state.running, true) {
                self.0.earlier.notify_one();
            } else {
                tokio::spawn(run(self.clone()));
            }
            KeptAlive { state: &self.0.state, key }
        };
        kept.await
    }

    /// How many holds are kept alive.
    #[must_use]
    pub fn len(&self) -> usize {
        lock(&self.0.state).entries.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
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
async fn run<R: RenewsTogether>(renewals: Renewals<R>) {
    // Whatever ends this task, the next hold starts another.
    let _running = Running(&renewals.0.state);
    loop {
        let next = {
            let mut state = lock(&renewals.0.state);
            if state.entries.is_empty() {
                state.running = false;
                return;
            }
            let (taken, next) = state.take();
            drop(state);
            for batch in taken {
                // Each by itself: one that hangs holds up no other.
                tokio::spawn(send(renewals.clone(), batch));
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
            () = renewals.0.earlier.notified() => {}
        }
    }
}

struct Running<'a>(&'a Mutex<State>);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut state = lock(self.0);
        if !state.entries.is_empty() {
            state.running = false;
        }
    }
}

fn send<R: RenewsTogether>(renewals: Renewals<R>, batch: Batch) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(sent(renewals, batch))
}

async fn sent<R: RenewsTogether>(renewals: Renewals<R>, mut batch: Batch) {
    batch.retain(|(key, validity, _)| {
        let held = validity.is_held();
        if !held {
            renewals.gone(*key, LossReason::Expired);
        }
        held
    });
    let limit = batch.iter().map(|(_, validity, _)| validity.request_limit()).min().unwrap_or_default();
    let limit = limit.min(renewals.0.by.longest());
    let left: Vec<_> = batch.iter().map(|(_, validity, _)| validity.now()).collect();
    let holds: Vec<_> = batch
        .iter()
        .map(|(_, validity, token)| Renewing {
            claim: validity.claim(),
            token: *token,
            server_ttl: validity.server_ttl(),
        })
        .collect();
    let (told, why) = match renewals.0.by.renew(&holds, limit).await {
        Renewed::Told(told, why) => (told, why),
        Renewed::Apart if batch.len() > 1 => {
            for renewal in batch {
                tokio::spawn(send(renewals.clone(), vec![renewal]));
            }
            return;
        }
        Renewed::Apart => (Vec::new(), None),
    };
    let mut told = told.into_iter();
    let mut due = Vec::with_capacity(batch.len());
    for ((key, validity, _), left_at) in batch.iter().zip(left) {
        match told.next().flatten() {
            Some(Renewal::Renewed) => {
                validity.renewed(left_at);
                due.push((*key, validity.renewal_due()));
            }
            Some(Renewal::Refused) => renewals.gone(*key, LossReason::Revoked),
            None => {
                match &why {
                    Some(why) => validity.doubt(why),
                    None => validity.doubt(&"a renewal was not answered"),
                }
                // Its patience comes on top, so it is asked again within a tenth of its ttl.
                due.push((*key, validity.now().plus(validity.retry_pause() / 2)));
            }
        }
    }
    let mut state = lock(&renewals.0.state);
    due.into_iter().for_each(|(key, due)| state.enqueue(key, due));
    drop(state);
    renewals.0.earlier.notify_one();
}

impl<R: RenewsTogether> Clone for Renewals<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R: RenewsTogether> fmt::Debug for Renewals<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renewals").field("holds", &self.len()).finish_non_exhaustive()
    }
}
