//! What crosses crates. Here: what was measured, kept in `measured/`, and what the README says of it.

pub mod measured;
