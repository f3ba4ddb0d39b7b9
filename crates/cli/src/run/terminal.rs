//! Who has the terminal: the supervisor's process group or the command's.

use super::group::Group;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getpgid, getpgrp, tcgetpgrp, tcsetpgrp};
use std::fs::File;
use std::io::{IsTerminal, stdin, stdout};
use std::sync::Arc;

/// Lets this process use its terminal while in the background: the system would
/// stop it with TTOU otherwise. Threads made later inherit it, and so does the command.
pub(super) fn outlive_background() {
    let _ = SigSet::from(Signal::SIGTTOU).thread_block();
}

/// Undoes [`outlive_background`], for the command.
pub(super) fn as_usual() {
    let _ = SigSet::from(Signal::SIGTTOU).thread_unblock();
}

/// Lets the command ask for the terminal by stopping for want of it, if its parent has it to give.
///
/// Shells ignore TTIN in `$(…)`, where the command, in a group of its own, would
/// be refused its input instead.
pub(super) fn let_ask(parent: i32) {
    let foreground = File::open("/dev/tty").ok().and_then(|tty| tcgetpgrp(&tty).ok());
    if foreground.is_some() && foreground == getpgid(Some(Pid::from_raw(parent))).ok() {
        // What has a handler has its default again in the program that is run next.
        let _ = signal_hook::flag::register(Signal::SIGTTIN as i32, Arc::default());
    }
}

/// The controlling terminal.
#[derive(Debug)]
pub(super) struct Terminal {
    tty: File,
    own: Pid,
    given: bool,
}

impl Terminal {
    /// `None` without a controlling terminal.
    pub(super) fn open() -> Option<Self> {
        let tty = File::options().read(true).write(true).open("/dev/tty").ok()?;
        Some(Self { tty, own: getpgrp(), given: false })
    }

    /// Whether the command should have the terminal before it asks: both its
    /// input and its output are one. Otherwise (`fencelock run … | less`) a
    /// neighbour in the pipeline may need it, and the command gets it when it
    /// stops for want of it.
    pub(super) fn is_wanted_from_the_start() -> bool {
        stdin().is_terminal() && stdout().is_terminal()
    }

    /// Whether our own process group is in the foreground.
    pub(super) fn is_ours(&self) -> bool {
        tcgetpgrp(&self.tty) == Ok(self.own)
    }

    /// Whether the command's group has got it from us.
    pub(super) fn is_given(&self) -> bool {
        self.given
    }

    /// Gives the terminal to the group, if it is ours to give; whether it was.
    pub(super) fn give(&mut self, group: Group) -> bool {
        let gave = self.is_ours() && tcsetpgrp(&self.tty, Pid::from_raw(group.leader().as_raw_nonzero().get())).is_ok();
        self.given |= gave;
        gave
    }

    /// Takes back what was given; whether there was anything.
    pub(super) fn take(&mut self) -> bool {
        // A terminal that has hung up has no foreground any more.
        std::mem::take(&mut self.given) && tcsetpgrp(&self.tty, self.own).is_ok()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.take();
    }
}
