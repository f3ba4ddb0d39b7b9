//! This program run again in another part.

use super::{child, watchdog};
use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The first argument of the process that becomes the user's command.
const COMMAND: &str = "__command";
/// The first argument of the watchdog.
const WATCHDOG: &str = "__watchdog";

/// Plays the part that the command line names, if it names one; its exit code.
///
/// Parts are not commands of the user, so they are told apart before the
/// command line is parsed: nothing in the user's command can be taken for an option.
pub(crate) fn played_a_part() -> Option<u8> {
    let mut args = env::args_os().skip(1);
    let part = args.next()?;
    match part.to_str()? {
        COMMAND => Some(child::main(args)),
        WATCHDOG => Some(watchdog::main(args)),
        _ => None,
    }
}

/// The process that becomes the user's command.
pub(super) fn command(args: impl IntoIterator<Item = OsString>) -> Command {
    part("fencelock", COMMAND, args)
}

/// The watchdog.
pub(super) fn watchdog(args: impl IntoIterator<Item = OsString>) -> Command {
    // Not the program's own name: `pkill -f fencelock` must not end it too.
    part("lock-watchdog", WATCHDOG, args)
}

fn part(shown: &str, name: &str, args: impl IntoIterator<Item = OsString>) -> Command {
    // The running program itself, even if its file has been replaced by an upgrade.
    let program = if cfg!(target_os = "linux") { Ok("/proc/self/exe".into()) } else { env::current_exe() };
    let mut command = Command::new(program.unwrap_or_else(|_| "fencelock".into()));
    command.arg0(shown).arg(name).args(args);
    command
}
