//! The supervisor's children, and when all is over.

use super::supervise::Supervisor;
use super::terminal::Terminal;
use super::wait;
use super::watching::Watching;
use crate::output::tell;
use rustix::process::Signal;
use std::time::Duration;
use tokio::time::timeout;

/// How long a killed process may take to be gone before it is given up as unkillable.
const DEATH: Duration = Duration::from_secs(10);

impl Supervisor<'_> {
    /// Sees what became of the command, the watchdog and orphans.
    pub(super) async fn look_after_children(&mut self) {
        let leader = self.group.leader();
        if self.command.is_none() {
            if let Some(signal) = wait::stopped(leader) {
                self.command_stopped(signal);
            }
            if let Some(exit) = wait::exited(leader) {
                self.command = Some(exit);
                let had_terminal = self.terminal.as_mut().is_some_and(Terminal::take);
                let signal = exit.signal.and_then(Signal::from_named_raw);
                self.interrupted = signal.filter(|s| had_terminal && matches!(*s, Signal::INT | Signal::QUIT));
            }
        }
        // After the deadline its work is done: the loss is about to be told.
        if !self.is_watched() && self.kill_at.is_none() && !self.reaped && self.hold.is_held() {
            self.watch_again().await;
        }
        wait::reap_orphans([Some(leader).filter(|_| !self.reaped), self.watchdog.as_ref().map(Watching::pid)]);
    }

    pub(super) fn is_watched(&mut self) -> bool {
        self.watchdog.as_mut().is_some_and(|watchdog| !watchdog.has_ended())
    }

    /// Replaces a watchdog that somebody has ended.
    async fn watch_again(&mut self) {
        self.watchdog = None;
        let start = Watching::start(self.group, self.grace, self.deadline);
        // Nobody watches the hold meanwhile, so it must not take longer than the hold lasts.
        match timeout(self.hold.remaining(), start).await {
            Ok(Ok(watchdog)) => self.watchdog = Some(watchdog),
            // The loss is told where it is noticed.
            _ if !self.hold.is_held() => {}
            Ok(Err(e)) => tell(format_args!("the watchdog has ended and cannot be started again: {e}")),
            Err(_) => tell("the watchdog has ended and did not start again in time"),
        }
    }

    /// Whether no process of the command is left; then the number of the group is free.
    pub(super) async fn is_over(&mut self) -> bool {
        if self.command.is_none() {
            return false;
        }
        if self.is_anybody_left() {
            return self.is_hopeless();
        }
        if !self.reaped {
            // From here on the number may be another's, so nobody may signal it any more.
            self.watchdog = None;
            wait::reap(self.group.leader());
            self.reaped = true;
            if !self.group.is_gone() && self.is_anybody_left() {
                // The list had missed one, which keeps the number for us.
                if self.kill_at.is_none() {
                    self.watch_again().await;
                }
                return false;
            }
        }
        true
    }

    /// Whether a process is alive beside the command, as far as can be seen. Reaps those of the group that are not.
    fn is_anybody_left(&self) -> bool {
        let Some(members) = self.group.members() else { return self.reaped && !self.group.is_gone() };
        for pid in members.dead.iter().filter(|pid| **pid != self.group.leader()) {
            wait::reap(*pid);
        }
        !members.alive.is_empty() || self.group.has_strays()
    }

    /// Whether killed processes will not die, in which case waiting helps nobody.
    fn is_hopeless(&mut self) -> bool {
        let hopeless = self.kill_at.is_some_and(|kill_at| self.clock.now() >= kill_at.plus(DEATH));
        if hopeless {
            tell("processes of the command were killed and have not died");
        }
        hopeless
    }
}
