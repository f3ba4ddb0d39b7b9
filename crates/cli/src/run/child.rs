//! The process that becomes the user's command.

use super::group::Group;
use super::{parts, strays, terminal};
use crate::exit;
use crate::output::say;
use fencelock::LockGuard;
use rustix::process::{Pid, Signal};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Starts the process as the leader of a new group. It stops itself until it
/// is continued, so that the watchdog knows the group before the command runs.
///
/// To be called on the main thread: on Linux the kernel kills the process when
/// the *thread* that started it ends.
pub(super) fn start(command: &[OsString], guard: &LockGuard) -> std::io::Result<Group> {
    let parent = rustix::process::getpid().as_raw_nonzero().to_string();
    let args = [parent.into()].into_iter().chain(command.iter().cloned());
    let claim = guard.claim_id().to_string();
    let variables = [
        ("FENCELOCK_NAME", guard.name().to_string()),
        ("FENCELOCK_TOKEN", guard.token().to_string()),
        (strays::VARIABLE, claim.clone()),
    ];
    let child = parts::command(args).envs(variables).process_group(0).spawn()?;
    Ok(Group::new(Pid::from_child(&child), &claim))
}

/// The process's own side; its exit code if it could not become the command.
pub(super) fn main(mut args: impl Iterator<Item = OsString>) -> u8 {
    let parent = args.next().and_then(|arg| arg.to_str()?.parse().ok());
    let (Some(parent), Some(program)) = (parent, args.next()) else {
        say("this is for fencelock's own use");
        return exit::USAGE;
    };
    if !tied_to(parent) {
        return exit::signalled(Signal::KILL.as_raw());
    }
    terminal::as_usual();
    terminal::let_ask(parent);
    if let Err(e) = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP) {
        say(format_args!("cannot stop: {e}"));
        return exit::SYSTEM;
    }
    let error = Command::new(&program).args(args).exec();
    say(format_args!("{}: {error}", program.display()));
    if error.kind() == ErrorKind::NotFound { exit::NOT_FOUND } else { exit::NOT_EXECUTABLE }
}

/// Dies with the supervisor from here on; false if that is gone already.
fn tied_to(parent: i32) -> bool {
    #[cfg(target_os = "linux")]
    if let Err(e) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
        say(format_args!("cannot be tied to the supervisor: {e}"));
        return false;
    }
    // It may have died before the tie was made, and another process have taken us over.
    rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get()) == Some(parent)
}
