//! How it is measured: times, processor time, one processor for all, and what is made of the rounds.

pub(crate) mod cpu;
mod histogram;
mod pin;
mod round;
pub(crate) mod stats;

pub(crate) use histogram::Histogram;
pub(crate) use pin::pin;
pub(crate) use round::{Round, Rounds};
