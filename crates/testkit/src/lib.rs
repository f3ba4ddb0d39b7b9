#![doc = include_str!("../README.md")]

mod cases;
mod child;
mod failure;
mod fenced_file;
mod harness;
pub mod history;
mod stage;
mod suite;

pub use cases::{CASES, Case};
pub use child::{HolderProcess, HolderTerms, run_if_child};
pub use failure::Failure;
pub use fenced_file::{FencedFile, FilePass};
pub use harness::Harness;
pub use suite::{Suite, main};
