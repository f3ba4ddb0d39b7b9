//! Asking all nodes at once: by a task for each, or by leaving the request with what is sent together.

use crate::answers::{Answers, Hearing, Question};
use crate::member::{Member, failure};
use crate::set::Set;
use fencelock_core::{ErrorKind, Result as Outcome, check_runtime};
use fencelock_redis::{NodeFailure, NodeWords, Posts};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Whether there is a runtime here, which everything that is asked needs. Whoever is called by users looks first.
///
/// # Errors
/// As [`check_runtime`] says.
pub(crate) fn here() -> Outcome<()> {
    check_runtime().map_err(|e| e.with_engine("redlock"))
}

/// Starts one task for each question, in the runtime of this thread; the requests go out at once, and each
/// runs to its end.
pub(crate) fn ask<T, F>(questions: impl ExactSizeIterator<Item = F>) -> Answers<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T, NodeFailure>> + Send + 'static,
{
    let (answers, hearing) = Answers::told_by_tasks(questions.len());
    for (at, question) in questions.enumerate() {
        let mut telling = Telling(Some((Arc::clone(&hearing), at)));
        tokio::spawn(async move {
            let answer = question.await;
            telling.tell(answer);
        });
    }
    answers
}

/// A task's duty: one that is ended has told so.
struct Telling<T>(Option<(Arc<Hearing<T>>, usize)>);

impl<T> Telling<T> {
    fn tell(&mut self, answer: Result<T, NodeFailure>) {
        if let Some((hearing, at)) = self.0.take() {
            hearing.tell(at, answer);
        }
    }
}

impl<T> Drop for Telling<T> {
    fn drop(&mut self) {
        let mut why = failure(ErrorKind::Unavailable, "its runtime has ended");
        why.settled = false;
        self.tell(Err(why));
    }
}

/// One script of the bundle for all nodes.
pub(crate) struct Posting {
    pub(crate) script: usize,
    pub(crate) words: NodeWords,
    pub(crate) limit: Duration,
}

impl Set {
    /// Leaves the script with each node that `takes` it, to travel with what else is ready.
    pub(crate) fn post<T: Send + 'static>(
        &self,
        Posting { script, words, limit }: Posting,
        takes: impl Fn(&Member) -> Result<(), NodeFailure>,
        question: impl Question<T> + 'static,
    ) -> Answers<T> {
        let end = Instant::now() + limit;
        let (answers, hearing) = Answers::posted(self.size(), self.majority(), end, question);
        for (at, member) in self.members.iter().enumerate() {
            match takes(member) {
                Ok(()) => member.node.post(script, &words, end, Arc::clone(&hearing) as Arc<dyn Posts>, at),
                Err(failure) => hearing.told(at, Err(failure)),
            }
        }
        answers
    }
}

/// Milliseconds, rounded up, so that a server never counts less than was asked for.
pub(crate) fn millis(ttl: Duration) -> String {
    whole_millis(ttl).to_string()
}

/// The same as a number.
pub(crate) fn whole_millis(ttl: Duration) -> u128 {
    ttl.as_nanos().div_ceil(1_000_000)
}
