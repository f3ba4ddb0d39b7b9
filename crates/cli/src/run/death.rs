//! Ending by a signal, so that whoever started us sees it.

use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};

/// Whether a program that ends by this signal tells its shell to stop too: a
/// shell goes on with its loop or script after a program that merely exits with 130.
fn stops_scripts(signal: Signal) -> bool {
    matches!(signal, Signal::INT | Signal::QUIT)
}

/// Ends this process by the signal if it is one that scripts heed; otherwise returns.
pub(super) fn follow(signal: i32) {
    let Some(signal) = Signal::from_named_raw(signal).filter(|signal| stops_scripts(*signal)) else { return };
    // The core would be ours, and tell nothing of the command.
    let limit = Rlimit { current: Some(0), maximum: getrlimit(Resource::Core).maximum };
    let _ = setrlimit(Resource::Core, limit);
    let _ = signal_hook::low_level::emulate_default_handler(signal.as_raw());
}
