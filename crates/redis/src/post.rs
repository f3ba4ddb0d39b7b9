//! Requests that are left with a node, which tells what came of them: nobody needs a task to wait for that.

use crate::failure::Failure;
use crate::node::NodeFailure;
use crate::words::Words;
use redis::Value;
use std::fmt;
use std::sync::Arc;

/// The keys and arguments of a script, in one piece: encoded once for all the nodes that are asked.
#[derive(Clone)]
pub struct NodeWords(pub(crate) Arc<Words>);

impl NodeWords {
    /// In the order in which the script counts them.
    #[must_use]
    pub fn new<K: AsRef<[u8]>, A: AsRef<[u8]>>(keys: &[K], args: &[A]) -> Self {
        Self(Arc::new(Words::new(keys, args)))
    }
}

/// What [`NodeWords`] are put together of, part by part.
pub struct WordsOf(Words);

impl WordsOf {
    /// None yet, but room for so many words of so many bytes in all.
    #[must_use]
    pub fn with_room(words: usize, bytes: usize) -> Self {
        Self(Words::with_room(words, bytes))
    }

    /// The next key, of these parts. All keys come before the first argument.
    #[must_use]
    pub fn key(mut self, parts: &[&str]) -> Self {
        self.0.key(parts);
        self
    }

    /// The next argument, of these parts.
    #[must_use]
    pub fn arg(mut self, parts: &[&str]) -> Self {
        self.0.arg(parts);
        self
    }

    /// The next argument, as it is written out.
    #[must_use]
    pub fn written(mut self, what: fmt::Arguments<'_>) -> Self {
        self.0.written(what);
        self
    }

    /// All of them.
    #[must_use]
    pub fn all(self) -> NodeWords {
        NodeWords(Arc::new(self.0.tagged()))
    }
}

impl fmt::Debug for WordsOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WordsOf").finish_non_exhaustive()
    }
}

impl fmt::Debug for NodeWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeWords").finish_non_exhaustive()
    }
}

/// What becomes of a posted request when it is its turn.
#[derive(Debug)]
#[non_exhaustive]
pub enum Leaving {
    /// It leaves as it was posted.
    Posted,
    /// This script of the bundle leaves in its place, with these keys and arguments: what was not known before has come to be.
    Instead(usize, NodeWords),
    /// It is not to leave any more.
    Not,
}

/// Who [posts](crate::Node::post) requests. Both are called in passing, and must not block.
pub trait Posts: Send + Sync {
    /// The request to the node at `place` leaves now, and may arrive from here on; unless this says that it does not.
    fn leaves(&self, place: usize) -> Leaving;

    /// What the node at `place` answered, or why it did not: once for each request.
    fn told(&self, place: usize, outcome: Result<Value, NodeFailure>);
}

/// A request's sender. Dropping it says that no answer came.
pub(crate) struct Post {
    to: Arc<dyn Posts>,
    place: usize,
    left: bool,
    told: bool,
}

impl Post {
    pub(crate) fn new(to: Arc<dyn Posts>, place: usize) -> Self {
        Self { to, place, left: false, told: false }
    }

    pub(crate) fn leaves(&mut self) -> Leaving {
        let leaving = self.to.leaves(self.place);
        self.left = !matches!(leaving, Leaving::Not);
        leaving
    }

    pub(crate) fn tell(mut self, outcome: Result<Value, Failure>) {
        self.told = true;
        self.to.told(self.place, outcome.map_err(NodeFailure::from));
    }
}

impl Drop for Post {
    fn drop(&mut self) {
        if !self.told {
            let failure =
                if self.left { Failure::no_answer() } else { Failure::not_reached("it did not leave in time") };
            self.to.told(self.place, Err(failure.into()));
        }
    }
}
