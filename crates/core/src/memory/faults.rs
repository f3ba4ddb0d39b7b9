//! What can go wrong between a client and its server.

use std::collections::VecDeque;
use std::time::Duration;

/// A request, by what it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Acquire, once or waiting.
    Acquire,
    /// Renew or extend.
    Renew,
    /// Release by the holder.
    Release,
    /// Undo by claim id.
    Abandon,
    /// Inspect, list and the operator's verbs.
    Inspect,
}

/// How one request travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delivery {
    /// It never arrives, and no answer comes.
    Lost,
    /// It arrives, and its answer is lost.
    ReplyLost,
    /// It arrives after this long; its answer is worth nothing if nobody waits any more.
    Late(Duration),
    /// It arrives at once and is answered, and a copy arrives after this long.
    Twice(Duration),
}

#[derive(Debug, Default)]
pub(super) struct Faults {
    pub(super) down: bool,
    pub(super) hung: bool,
    pub(super) next: VecDeque<(Operation, Delivery)>,
}

impl Faults {
    /// Whether any request may travel otherwise than it should.
    pub(super) fn any(&self) -> bool {
        self.down || self.hung || !self.next.is_empty()
    }

    /// How the next request of this kind travels.
    pub(super) fn take(&mut self, operation: Operation) -> Option<Delivery> {
        let at = self.next.iter().position(|(kind, _)| *kind == operation)?;
        self.next.remove(at).map(|(_, delivery)| delivery)
    }
}
