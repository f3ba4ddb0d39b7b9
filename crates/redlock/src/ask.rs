//! Asking all nodes at once. Nobody waits for the slow ones longer than a majority needs.

use fencelock_core::{Result as Outcome, check_runtime};
use fencelock_redis::NodeFailure;
use std::future::Future;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

/// What a node answered, by its place in the set.
pub(crate) type Answered<T> = (usize, Result<T, NodeFailure>);

/// The answers to one question, as they come. Dropping it takes nothing back:
/// each request runs in a task of its own, to its end.
pub(crate) struct Answers<T> {
    coming: mpsc::UnboundedReceiver<Answered<T>>,
    left: usize,
}

/// Whether there is a runtime here, which everything that is asked needs. Whoever is called by users looks first.
///
/// # Errors
/// As [`check_runtime`] says.
pub(crate) fn here() -> Outcome<()> {
    check_runtime().map_err(|e| e.with_engine("redlock"))
}

/// Starts one task for each question, in the runtime of this thread; the requests go out at once.
pub(crate) fn ask<T, F>(questions: impl IntoIterator<Item = F>) -> Answers<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T, NodeFailure>> + Send + 'static,
{
    let (told, coming) = mpsc::unbounded_channel();
    let mut left = 0;
    for (at, question) in questions.into_iter().enumerate() {
        let told = told.clone();
        left += 1;
        tokio::spawn(async move {
            let answer = question.await;
            let _ = told.send((at, answer));
        });
    }
    Answers { coming, left }
}

impl<T> Answers<T> {
    /// The next answer or failure; `None` when each node has told.
    pub(crate) async fn next(&mut self) -> Option<Answered<T>> {
        let answer = self.coming.recv().await?;
        self.left = self.left.saturating_sub(1);
        Some(answer)
    }

    /// As [`next`](Self::next), but not after `grace`.
    pub(crate) async fn next_by(&mut self, grace: Instant) -> Option<Answered<T>> {
        timeout_at(grace, self.next()).await.ok().flatten()
    }

    /// How many have not told yet.
    pub(crate) fn left(&self) -> usize {
        self.left
    }
}

/// Milliseconds, rounded up, so that a server never counts less than was asked for.
pub(crate) fn millis(ttl: Duration) -> String {
    ttl.as_nanos().div_ceil(1_000_000).to_string()
}
