//! Job control: who has the terminal, stops and continues.

use super::group;
use super::supervise::Supervisor;
use super::terminal::Terminal;
use rustix::process::Signal;

impl Supervisor<'_> {
    /// The command has stopped: at its very start, from the terminal, or for want of the terminal.
    pub(super) fn command_stopped(&mut self, signal: i32) {
        if !self.started {
            self.begin();
            return;
        }
        let Some(terminal) = &mut self.terminal else { return };
        match Signal::from_named_raw(signal) {
            Some(Signal::TTIN | Signal::TTOU) if terminal.give(self.group) => self.send(Signal::CONT),
            Some(Signal::TSTP) => self.stopped_from_the_terminal(),
            Some(Signal::TTIN | Signal::TTOU) => self.suspend(),
            Some(Signal::STOP) if terminal.is_given() => self.suspend(),
            _ => {}
        }
    }

    fn stopped_from_the_terminal(&mut self) {
        if group::we_are_orphaned() {
            // Nobody could continue us; the system itself does not stop such a group.
            self.send(Signal::CONT);
        } else {
            self.suspend();
        }
    }

    /// Notices a stop that nobody tells of.
    pub(super) fn unstick(&mut self) {
        let has_terminal = self.terminal.as_ref().is_some_and(Terminal::is_given);
        let stuck = has_terminal && self.command.is_none() && self.kill_at.is_none() && self.group.is_stuck();
        // Twice in a row, since a group that is about to stop looks the same for a moment.
        if std::mem::replace(&mut self.stuck, stuck) && stuck {
            self.stuck = false;
            self.stopped_from_the_terminal();
        }
    }

    fn begin(&mut self) {
        if self.kill_at.is_some() || !self.hold.is_held() {
            return;
        }
        self.started = true;
        if let Some(terminal) = self.terminal.as_mut().filter(|_| Terminal::is_wanted_from_the_start()) {
            terminal.give(self.group);
        }
        self.send(Signal::CONT);
    }

    /// Follows the command into its stop, so that the shell takes over. Returns once continued.
    fn suspend(&mut self) {
        if self.terminal.as_mut().is_some_and(Terminal::take) {
            // The terminal would have stopped the whole job, had the command stayed in our group.
            self.own_stop = true;
            let _ = rustix::process::kill_current_process_group(Signal::TSTP);
        }
        stop_ourselves();
    }

    /// We were continued: the command goes on too, if the lock is still ours.
    pub(super) fn resume(&mut self) {
        if self.kill_at.is_some() || !self.hold.is_held() {
            // Continued first, it could act without the lock.
            self.send(Signal::KILL);
            return;
        }
        if self.started {
            if let Some(terminal) = self.terminal.as_mut().filter(|_| Terminal::is_wanted_from_the_start()) {
                terminal.give(self.group);
            }
            self.send(Signal::CONT);
        }
    }
}

pub(super) fn stop_ourselves() {
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
}
