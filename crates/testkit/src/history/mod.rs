//! What happened to locks and to what they guard, and whether it was right.
//!
//! Workers, each a process of its own, write what they ask and what they are told
//! with a [`Recorder`], which loses nothing when its process is killed. The files
//! of all of them, [read together](read()), are a history, and
//! [`check`](check::check) says of each [`Property`] whether it holds in it, of how
//! many things it was asked, and if it does not, between which events.
//!
//! All times are nanoseconds of one clock that counts for the whole host and
//! through suspend: [`Clock::system`](fencelock_core::Clock::system).
//!
//! # What is exact
//! A history of acquires and holds is linearizable as a fenced mutex (there is one
//! order of holds, each granted between its acquire's call and return, ended
//! before the next is granted, with growing tokens) if and only if E1, E2, K1 and
//! K2 hold in it. Tokens fix the order, so that no search is needed: sorting
//! decides it. A test compares this with a search over all orders.

pub mod check;
mod event;
mod holds;
mod property;
mod record;

pub use event::{Event, GateAnswer, ReleaseAnswer, What};
pub use property::{Finding, Property, Verdict, Verdicts};
pub use record::{Recorder, read};
