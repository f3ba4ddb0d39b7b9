//! One line of a history.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Something that a worker asked or was told, or that was done to the world.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When, in nanoseconds of the host's clock: a call's before it is made, an
    /// answer's after it has come.
    pub at: u64,
    /// Who wrote it. No two processes of a history have the same.
    pub worker: u32,
    /// Which of the worker's acquires it belongs to; events of the world have 0.
    pub hold: u32,
    /// What it was.
    #[serde(flatten)]
    pub what: What,
}

/// What an event says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
#[non_exhaustive]
pub enum What {
    /// Acquire is called.
    Acquire {
        /// The lock's name.
        lock: Arc<str>,
    },
    /// It was granted.
    Granted {
        /// The hold's fencing token.
        token: u64,
    },
    /// The acquire came to nothing: contended, out of time, or an error.
    NotGranted {
        /// Why.
        why: Arc<str>,
    },
    /// `is_held()` said true.
    Believed {
        /// When it was called.
        asked: u64,
        /// The deadline, read after the answer.
        deadline: u64,
    },
    /// `is_held()` said false.
    Doubted {
        /// When it was called.
        asked: u64,
    },
    /// The loss was told.
    Lost {
        /// The loss reason: `expired`, `revoked`, `session_ended`, `max_hold`.
        reason: Arc<str>,
    },
    /// Release is called.
    Release,
    /// Release has answered.
    Released {
        /// What it said.
        answer: ReleaseAnswer,
    },
    /// The hold's token is about to enter at a resource.
    Enter {
        /// The resource.
        resource: Arc<str>,
    },
    /// The gate has answered.
    Entered {
        /// The resource.
        resource: Arc<str>,
        /// What it said.
        answer: GateAnswer,
    },
    /// The resource was read.
    Read {
        /// The resource.
        resource: Arc<str>,
    },
    /// The holder has looked whether it still holds, and goes on to write.
    Decided {
        /// The resource.
        resource: Arc<str>,
    },
    /// A counter is about to be set to a value, one above the one that was read.
    Write {
        /// The resource.
        resource: Arc<str>,
        /// The value written.
        value: u64,
    },
    /// The write has been answered.
    Wrote {
        /// The resource.
        resource: Arc<str>,
        /// The value written.
        value: u64,
        /// What was said.
        answer: GateAnswer,
    },
    /// An element is about to be appended to a list that was read and is written back whole.
    Append {
        /// The resource.
        resource: Arc<str>,
        /// The element; no other append of the history has the same.
        element: u64,
    },
    /// The append has been answered.
    Appended {
        /// The resource.
        resource: Arc<str>,
        /// The element.
        element: u64,
        /// What was said.
        answer: GateAnswer,
    },
    /// What a counter is after everything has ended.
    FinalCount {
        /// The resource.
        resource: Arc<str>,
        /// Its value.
        value: u64,
    },
    /// What a list is after everything has ended.
    FinalList {
        /// The resource.
        resource: Arc<str>,
        /// Its elements.
        elements: Vec<u64>,
    },
    /// A lock was taken from its holder by an operator.
    Forced {
        /// The lock's name.
        lock: Arc<str>,
    },
    /// A fault begins.
    Fault {
        /// A number that no other fault of the history has.
        fault: u32,
        /// What is done.
        kind: Arc<str>,
    },
    /// A fault is over.
    Healed {
        /// The number it began with.
        fault: u32,
    },
}

/// What a release said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ReleaseAnswer {
    /// It was ours and is free.
    Freed,
    /// It was not ours any more.
    Lost,
    /// No answer came.
    Unknown,
}

/// What stands before the data has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum GateAnswer {
    /// Done.
    Accepted,
    /// Refused: a larger token has entered.
    Stale,
    /// No answer came, or one that says neither.
    Unknown,
}
