//! Who waits for which lock, as everyone who listens hears it.
//!
//! Notices of one database arrive everywhere in one order, that of the commits. So a client that has heard of
//! something since its own hold began has heard of everything before it, and knows of nobody who has been served.

use super::notice::{Handing, Waiting};
use fencelock_core::ClaimId;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// For how long one who waits counts as waiting: it tells so again every 5 s.
const AGE: Duration = Duration::from_secs(15);
/// Who has waited for less is not handed the lock: it is freed, and whoever asks first has it. So a lock under which
/// nothing is done does not change hands at every release, which costs each time that two notices are sent and heard.
const PATIENCE: Duration = Duration::from_millis(5);
/// The most who are kept of one name, and the most names.
const MOST_WAITING: usize = 1_024;
const MOST_NAMES: usize = 4_096;
/// For how long what had been told before by one who is seen to hold the lock may still come.
const LATE: Duration = Duration::from_secs(1);
/// The most who are kept of one name of whom that is awaited.
const MOST_LATE: usize = 16;
/// To how many at the head a release may hand the lock on: the first who is still there gets it.
const HEAD: usize = 4;

#[derive(Default)]
pub(super) struct Queues(HashMap<String, Queue>);

struct Queue {
    waiting: VecDeque<Known>,
    /// Who was seen to hold the lock, and when: what they had told before, on another connection, may come after.
    held: VecDeque<(ClaimId, Instant)>,
    /// The newest token that was told.
    newest: i64,
    heard: Instant,
}

struct Known {
    waiting: Waiting,
    /// When it was first heard of, and last.
    first: Instant,
    last: Instant,
}

impl Known {
    fn is_fresh(&self, now: Instant) -> bool {
        now.duration_since(self.last) < AGE
    }
}

impl Queue {
    fn remove(&mut self, id: ClaimId) {
        self.waiting.retain(|known| known.waiting.id != id);
    }
}

impl Queues {
    /// Somebody waits, and saw the hold of `token`.
    pub(super) fn waits(&mut self, name: String, waiting: Waiting, token: i64) {
        let now = Instant::now();
        if !self.0.contains_key(&name) && self.0.len() >= 64 {
            self.0.retain(|_, queue| now.duration_since(queue.heard) < AGE);
            if self.0.len() >= MOST_NAMES {
                return;
            }
        }
        let new = || Queue { waiting: VecDeque::new(), held: VecDeque::new(), newest: 0, heard: now };
        let queue = self.0.entry(name).or_insert_with(new);
        (queue.newest, queue.heard) = (queue.newest.max(token), now);
        queue.waiting.retain(|known| known.is_fresh(now));
        queue.held.retain(|(_, at)| now.duration_since(*at) < LATE);
        if queue.held.iter().any(|(id, _)| *id == waiting.id) {
            return;
        }
        if let Some(known) = queue.waiting.iter_mut().find(|known| known.waiting.id == waiting.id) {
            (known.waiting, known.last) = (waiting, now);
        } else if queue.waiting.len() < MOST_WAITING {
            queue.waiting.push_back(Known { waiting, first: now, last: now });
        }
    }

    pub(super) fn handed(&mut self, handing: &Handing) {
        if let Some(queue) = self.0.get_mut(&handing.name) {
            queue.remove(handing.from);
            queue.remove(handing.to);
            queue.newest = queue.newest.max(handing.token);
        }
    }

    /// The claim waits and holds no more; it held under `token`, or did not.
    pub(super) fn gone(&mut self, name: &str, id: ClaimId, token: i64) {
        if let Some(queue) = self.0.get_mut(name) {
            queue.remove(id);
            queue.newest = queue.newest.max(token);
        }
    }

    /// This client freed what it held under `token`, after the hold of token `since`, and maybe told nobody: what it
    /// knew of everything before its own hold, it still knows.
    pub(super) fn freed(&mut self, name: &str, since: i64, token: i64) {
        if let Some(queue) = self.0.get_mut(name).filter(|queue| queue.newest >= since) {
            queue.newest = queue.newest.max(token);
        }
    }

    /// The claim was seen to hold the lock, or to have held it last: it waits no more, whether or not it took the lock
    /// without a word to the others.
    pub(super) fn held(&mut self, name: &str, id: ClaimId) {
        if let Some(queue) = self.0.get_mut(name) {
            queue.remove(id);
            queue.held.retain(|(held, _)| *held != id);
            if queue.held.len() >= MOST_LATE {
                queue.held.pop_front();
            }
            queue.held.push_back((id, Instant::now()));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// These are not there any more.
    pub(super) fn dead(&mut self, name: &str, ids: impl IntoIterator<Item = ClaimId>) {
        if let Some(queue) = self.0.get_mut(name) {
            ids.into_iter().for_each(|id| queue.remove(id));
        }
    }

    /// To whom a hold may be handed on that began after the hold of token `since`: nobody while what was told before
    /// that ended may not have been heard, since those who have been served since would be served again.
    pub(super) fn heads(&self, name: &str, id: ClaimId, since: i64) -> Vec<Waiting> {
        let Some(queue) = self.0.get(name).filter(|queue| queue.newest >= since) else { return Vec::new() };
        let now = Instant::now();
        let due = queue.waiting.iter().filter(|known| known.waiting.id != id && known.is_fresh(now));
        let due = due.skip_while(|known| now.duration_since(known.first) < PATIENCE);
        due.take(HEAD).map(|known| known.waiting.clone()).collect()
    }

    /// Whether anybody has told that it waits, and nobody that it does not any more.
    pub(super) fn is_waited_for(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|queue| !queue.waiting.is_empty())
    }

    /// Notices were missed.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock_core::{LockName, Terms};

    fn waiting() -> Waiting {
        let claim = Terms::new(LockName::new("a").unwrap(), Duration::from_secs(1)).mint().unwrap();
        Waiting::new(&claim, 1, 0, 0)
    }

    fn handing(from: ClaimId, to: ClaimId, token: i64) -> Handing {
        Handing { name: "61".to_owned(), from, to, listener: 1, round: 0, passed: 1, token, ttl: 1 }
    }

    fn heads(queues: &Queues, id: ClaimId, token: i64) -> Vec<ClaimId> {
        queues.heads("61", id, token).iter().map(|waiting| waiting.id).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_is_served_in_order_once_and_not_for_ever() {
        let (mut queues, [a, b, c]) = (Queues::default(), [waiting(), waiting(), waiting()]);
        for waiting in [&a, &b, &a, &c] {
            queues.waits("61".to_owned(), waiting.clone(), 7);
        }
        let other = ClaimId::from_bytes([1; 16]);
        tokio::time::advance(PATIENCE - Duration::from_millis(1)).await;
        assert!(heads(&queues, other, 7).is_empty(), "nobody has waited for long");
        // That it tells again does not begin its wait anew.
        queues.waits("61".to_owned(), a.clone(), 7);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(heads(&queues, other, 7), [a.id, b.id, c.id]);
        assert_eq!(heads(&queues, a.id, 7), [b.id, c.id]);
        assert!(heads(&queues, other, 8).is_empty(), "of what was before token 8, not everything may have been heard");
        // Held by this client after 6, which it had heard of, and freed with nobody to be told.
        let mut freed = Queues::default();
        freed.waits("61".to_owned(), a.clone(), 6);
        tokio::time::advance(PATIENCE).await;
        freed.freed("61", 7, 8);
        assert!(heads(&freed, other, 8).is_empty(), "after 7, of which it had not heard");
        freed.freed("61", 6, 8);
        assert_eq!(heads(&freed, other, 8), [a.id]);
        assert!(queues.heads("62", other, 0).is_empty());
        queues.handed(&handing(other, a.id, 8));
        assert_eq!(heads(&queues, a.id, 8), [b.id, c.id]);
        queues.gone("61", b.id, 8);
        tokio::time::advance(AGE / 2).await;
        queues.waits("61".to_owned(), b.clone(), 8);
        tokio::time::advance(AGE / 2).await;
        assert_eq!(heads(&queues, a.id, 8), [b.id], "the other has not told for long");
        queues.clear();
        assert!(heads(&queues, a.id, 0).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn who_was_seen_to_hold_it_waits_no_more() {
        let (mut queues, [a, b]) = (Queues::default(), [waiting(), waiting()]);
        for waiting in [&a, &b] {
            queues.waits("61".to_owned(), waiting.clone(), 7);
        }
        tokio::time::advance(PATIENCE).await;
        let other = ClaimId::from_bytes([1; 16]);
        queues.held("61", a.id);
        assert_eq!(heads(&queues, other, 7), [b.id]);
        // What it had told before it took the lock comes by another connection.
        queues.waits("61".to_owned(), a.clone(), 7);
        tokio::time::advance(PATIENCE).await;
        assert_eq!(heads(&queues, other, 7), [b.id]);
        // It was handed the lock and never heard of it: by now that is over, and it waits on.
        tokio::time::advance(LATE).await;
        queues.waits("61".to_owned(), a.clone(), 8);
        tokio::time::advance(PATIENCE).await;
        assert_eq!(heads(&queues, other, 8), [b.id, a.id]);
        for n in 0..100 {
            queues.held("61", ClaimId::from_bytes([n; 16]));
        }
        assert!(queues.0.values().all(|queue| queue.held.len() <= MOST_LATE));
    }

    #[tokio::test(start_paused = true)]
    async fn however_many_tell_what_is_kept_is_bounded() {
        let mut queues = Queues::default();
        for _ in 0..2 * MOST_WAITING {
            queues.waits("61".to_owned(), waiting(), 7);
        }
        for n in 0..10_000 {
            queues.waits(n.to_string(), waiting(), 7);
        }
        assert!(queues.0.len() <= MOST_NAMES && queues.0.values().all(|queue| queue.waiting.len() <= MOST_WAITING));
        tokio::time::advance(AGE).await;
        queues.waits("x".to_owned(), waiting(), 7);
        assert_eq!(queues.0.len(), 1);
    }
}
