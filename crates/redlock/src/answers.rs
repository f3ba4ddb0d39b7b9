//! The answers to one question, as the nodes tell them: nobody waits for the slow ones longer than a majority needs.

use crate::member::failure;
use crate::set::lock;
use fencelock_core::{Claim, ErrorKind, by};
use fencelock_redis::redis::Value;
use fencelock_redis::{Leaving, NodeFailure, NodeWords, Posts};
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// What a node answered, by its place in the set.
pub(crate) type Answered<T> = (usize, Result<T, NodeFailure>);

/// What is asked of each node. It is used in passing, so it must not block, nor be about its own answers.
pub(crate) trait Question<T>: Send + Sync {
    /// Reads what came of the request to the node at `at`: once for each, whoever waits for it or does not.
    fn read(&self, at: usize, outcome: Result<Value, NodeFailure>) -> Result<T, NodeFailure>;

    /// Another script of the bundle, with its words, for the node at `at`, whose turn it is now.
    fn instead(&self, _at: usize) -> Option<(usize, NodeWords)> {
        None
    }
}

impl<T, F> Question<T> for F
where
    F: Fn(Result<Value, NodeFailure>) -> Result<T, NodeFailure> + Send + Sync,
{
    fn read(&self, _: usize, outcome: Result<Value, NodeFailure>) -> Result<T, NodeFailure> {
        self(outcome)
    }
}

/// Is told of answers that nobody waits for any more.
type Later<T> = Arc<dyn Fn(usize, Result<T, NodeFailure>) + Send + Sync>;

/// One node, and what it was asked.
enum Place<T> {
    /// The request waits for others, and can be taken back.
    Waiting,
    /// It may arrive.
    Left,
    /// What came of it is being read.
    Reading,
    Told(Result<T, NodeFailure>),
    Taken,
}

/// Where what the nodes tell of one question comes together.
pub(crate) struct Hearing<T> {
    state: Mutex<State<T>>,
    /// So many have to tell before any answer is of use.
    enough: usize,
    question: Option<Box<dyn Question<T>>>,
}

struct State<T> {
    places: Vec<Place<T>>,
    waker: Option<Waker>,
    later: Option<Later<T>>,
}

impl<T> State<T> {
    /// Whether there is something to take, or will never be.
    fn is_due(&self, enough: usize) -> bool {
        let told = self.places.iter().filter(|place| matches!(place, Place::Told(_) | Place::Taken)).count();
        told >= enough.min(self.places.len())
    }

    fn take(&mut self) -> Option<Answered<T>> {
        let (at, place) = self.places.iter_mut().enumerate().find(|(_, place)| matches!(place, Place::Told(_)))?;
        match std::mem::replace(place, Place::Taken) {
            Place::Told(answer) => Some((at, answer)),
            _ => None,
        }
    }

    fn left(&self) -> usize {
        self.places.iter().filter(|place| !matches!(place, Place::Taken)).count()
    }
}

impl<T> Hearing<T> {
    fn new(nodes: usize, enough: usize, question: Option<Box<dyn Question<T>>>) -> Arc<Self> {
        let places = (0..nodes).map(|_| Place::Waiting).collect();
        Arc::new(Self { state: Mutex::new(State { places, waker: None, later: None }), enough, question })
    }

    /// The node at `at` has told.
    pub(crate) fn tell(&self, at: usize, answer: Result<T, NodeFailure>) {
        let mut state = lock(&self.state);
        let later = state.later.clone();
        let Some(place) = state.places.get_mut(at) else { return };
        if let Some(later) = later {
            *place = Place::Taken;
            drop(state);
            return later(at, answer);
        }
        *place = Place::Told(answer);
        let waker = if state.is_due(self.enough) { state.waker.take() } else { None };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Closes a place where nothing was told yet; whether its request has left.
    fn close(&self, at: usize, though_left: bool) -> Option<bool> {
        let mut state = lock(&self.state);
        let place = state.places.get_mut(at)?;
        let left = match place {
            Place::Waiting => false,
            Place::Left if though_left => true,
            _ => return None,
        };
        *place = Place::Reading;
        Some(left)
    }

    /// Takes back what has not left. With `though_left` the time of what has left is over as well.
    fn end(&self, though_left: bool) {
        let nodes = lock(&self.state).places.len();
        for at in 0..nodes {
            if let Some(left) = self.close(at, though_left) {
                let mut why = failure(ErrorKind::Unavailable, "no answer within `request_timeout`");
                why.settled = !left;
                self.read(at, Err(why));
            }
        }
    }

    fn read(&self, at: usize, outcome: Result<Value, NodeFailure>) {
        if let Some(question) = &self.question {
            self.tell(at, question.read(at, outcome));
        }
    }
}

impl<T: Send + 'static> Posts for Hearing<T> {
    fn leaves(&self, at: usize) -> Leaving {
        match lock(&self.state).places.get_mut(at) {
            Some(place @ Place::Waiting) => *place = Place::Left,
            _ => return Leaving::Not,
        }
        let instead = self.question.as_ref().and_then(|question| question.instead(at));
        instead.map_or(Leaving::Posted, |(script, words)| Leaving::Instead(script, words))
    }

    fn told(&self, at: usize, outcome: Result<Value, NodeFailure>) {
        if self.close(at, true).is_some() {
            self.read(at, outcome);
        }
    }
}

/// The answers to one question, as they come.
///
/// # Drop
/// Takes back what was [taken for wanted](Self::only_while_wanted) only as long as somebody waits, and has not left. All else runs to its
/// end, and is read.
pub(crate) struct Answers<T> {
    hearing: Arc<Hearing<T>>,
    /// Until when the nodes have time.
    end: Option<Instant>,
    /// The claim whose call waits for them.
    of: Option<Claim>,
    only_while_wanted: bool,
}

impl<T> Answers<T> {
    /// Of nodes that are asked in tasks, each with its own time-out.
    pub(crate) fn told_by_tasks(nodes: usize) -> (Self, Arc<Hearing<T>>) {
        Self::new(Hearing::new(nodes, 1, None), None)
    }

    /// Of nodes with which requests are left until `end`; fewer than `enough` of them decide nothing.
    pub(crate) fn posted(
        nodes: usize,
        enough: usize,
        end: Instant,
        question: impl Question<T> + 'static,
    ) -> (Self, Arc<Hearing<T>>) {
        Self::new(Hearing::new(nodes, enough, Some(Box::new(question))), Some(end))
    }

    fn new(hearing: Arc<Hearing<T>>, end: Option<Instant>) -> (Self, Arc<Hearing<T>>) {
        (Self { hearing: Arc::clone(&hearing), end, of: None, only_while_wanted: false }, hearing)
    }

    /// They are waited for by the claim's own call, for at most `limit`.
    pub(crate) fn of(mut self, claim: &Claim, limit: Duration) -> Self {
        self.of = claim.far(limit).cloned();
        self
    }

    /// What has not left when this is dropped never does.
    pub(crate) fn only_while_wanted(mut self) -> Self {
        self.only_while_wanted = true;
        self
    }

    /// The next answer or failure; `None` when each node has told.
    ///
    /// # Cancel safety
    /// Dropping the future loses no answer.
    pub(crate) async fn next(&mut self) -> Option<Answered<T>> {
        let Some(end) = self.end else { return self.told().await };
        if let Some(told) = by(end, self.of.as_ref(), self.told()).await {
            return told;
        }
        self.hearing.end(true);
        self.told().await
    }

    /// As [`next`](Self::next), but not after `grace`.
    pub(crate) async fn next_by(&mut self, grace: Instant) -> Option<Answered<T>> {
        timeout_at(grace, self.next()).await.ok().flatten()
    }

    async fn told(&self) -> Option<Answered<T>> {
        poll_fn(|context| {
            let mut state = lock(&self.hearing.state);
            if state.is_due(self.hearing.enough) {
                if let Some(answer) = state.take() {
                    return Poll::Ready(Some(answer));
                }
                if state.left() == 0 {
                    return Poll::Ready(None);
                }
            }
            match &mut state.waker {
                Some(waker) => waker.clone_from(context.waker()),
                none => *none = Some(context.waker().clone()),
            }
            Poll::Pending
        })
        .await
    }

    /// How many were not taken yet.
    pub(crate) fn left(&self) -> usize {
        lock(&self.hearing.state).left()
    }

    /// Gives those that were not taken to `later`, when they come. What has not left leaves.
    pub(crate) fn later(mut self, later: impl Fn(usize, Result<T, NodeFailure>) + Send + Sync + 'static) {
        self.only_while_wanted = false;
        let mut state = lock(&self.hearing.state);
        if state.left() == 0 {
            return;
        }
        let later: Later<T> = Arc::new(later);
        state.later = Some(Arc::clone(&later));
        let mut told = Vec::new();
        while let Some(answer) = state.take() {
            told.push(answer);
        }
        drop(state);
        told.into_iter().for_each(|(at, answer)| later(at, answer));
    }
}

impl<T> Drop for Answers<T> {
    fn drop(&mut self) {
        if self.only_while_wanted {
            self.hearing.end(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Answers of three nodes for a second, and how often one that may still be worked off was read.
    fn three() -> (Answers<i64>, Arc<Hearing<i64>>, Arc<AtomicUsize>) {
        let unknown = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&unknown);
        let read = move |outcome: Result<Value, NodeFailure>| match outcome {
            Ok(Value::Int(number)) => Ok(number),
            Ok(_) => Err(failure(ErrorKind::Engine, "odd")),
            Err(failure) => {
                counted.fetch_add(usize::from(!failure.settled), Ordering::SeqCst);
                Err(failure)
            }
        };
        let (answers, hearing) = Answers::posted(3, 2, Instant::now() + Duration::from_secs(1), read);
        (answers, hearing, unknown)
    }

    fn leaves(hearing: &Hearing<i64>, at: usize) -> bool {
        matches!(hearing.leaves(at), Leaving::Posted)
    }

    fn number(answer: Option<Answered<i64>>) -> Option<(usize, i64)> {
        answer.and_then(|(at, answer)| Some((at, answer.ok()?)))
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_node_is_waited_for_until_its_time_is_over_and_is_unknown_only_if_its_request_left() {
        let (mut answers, hearing, unknown) = three();
        assert!(leaves(&hearing, 0) && leaves(&hearing, 1) && !leaves(&hearing, 1), "once");
        hearing.told(0, Ok(Value::Int(7)));
        let begun = Instant::now();
        let mut told = [0; 2];
        while let Some((_, answer)) = answers.next().await {
            told[usize::from(answer.is_err())] += 1;
        }
        assert_eq!((told, begun.elapsed()), ([1, 2], Duration::from_secs(1)));
        assert_eq!(unknown.load(Ordering::SeqCst), 1, "the third had not left");
        assert!(!leaves(&hearing, 2), "and never does");
        hearing.told(1, Ok(Value::Int(8)));
        assert!(answers.next().await.is_none(), "what comes after its time is told no more");
    }

    #[tokio::test(start_paused = true)]
    async fn answers_are_of_use_from_a_majority_on() {
        let (mut answers, hearing, _) = three();
        hearing.told(2, Ok(Value::Int(1)));
        assert!(answers.next_by(Instant::now() + Duration::from_millis(1)).await.is_none());
        assert_eq!(answers.left(), 3, "what was not taken was not counted");
        hearing.told(0, Ok(Value::Int(2)));
        assert_eq!((number(answers.next().await), number(answers.next().await)), (Some((0, 2)), Some((2, 1))));
        assert_eq!(answers.left(), 1);
    }

    #[test]
    fn who_goes_takes_back_what_has_not_left_and_the_rest_is_read() {
        let (answers, hearing, unknown) = three();
        assert!(leaves(&hearing, 0));
        drop(answers.only_while_wanted());
        assert!(!leaves(&hearing, 1) && !leaves(&hearing, 2));
        assert_eq!(unknown.load(Ordering::SeqCst), 0);
        let mut lost = failure(ErrorKind::Unavailable, "lost");
        lost.settled = false;
        hearing.told(0, Err(lost));
        assert_eq!(unknown.load(Ordering::SeqCst), 1);
        let (answers, hearing, _) = three();
        drop(answers);
        assert!(leaves(&hearing, 1), "a release goes on");
    }

    #[test]
    fn what_comes_later_is_heard_once_each_and_leaves() {
        let (answers, hearing, _) = three();
        hearing.told(1, Ok(Value::Int(1)));
        let sum = Arc::new(AtomicUsize::new(0));
        let heard = Arc::clone(&sum);
        answers.only_while_wanted().later(move |at, answer| {
            heard.fetch_add(at * 10 + usize::from(answer.is_ok()), Ordering::SeqCst);
        });
        assert_eq!(sum.load(Ordering::SeqCst), 11);
        assert!(leaves(&hearing, 2));
        hearing.told(2, Ok(Value::Int(1)));
        hearing.told(2, Ok(Value::Int(1)));
        assert_eq!(sum.load(Ordering::SeqCst), 32);
    }
}
