//! The suite's other processes: its own binary, run again with a role to play.

mod process;
mod role;
mod terms;

pub use process::HolderProcess;
pub use role::run_if_child;
pub use terms::HolderTerms;
pub(crate) use terms::Role;
