//! The supervisor: holds the lock while the command runs, and stops the command when the lock is lost.

use super::child;
use super::group::{self, Group};
use super::signals::Signals;
use super::terminal::Terminal;
use super::wait::{self, Exit};
use super::watching::Watching;
use crate::args::Run;
use crate::exit::Failure;
use crate::output::{clean, say};
use fencelock::{Clock, LockGuard, LockMonitor, LossReason, Moment};
use rustix::process::Signal;
use std::time::Duration;

/// How often the group is looked at once the command has ended or the lock is lost.
const LOOK: Duration = Duration::from_millis(50);
/// How long a killed process may take to be gone before it is given up as unkillable.
const DEATH: Duration = Duration::from_secs(10);

/// How the command came to its end.
#[derive(Debug)]
pub(super) enum End {
    /// By itself or by a signal; its exit code.
    Command(u8),
    /// The lock was lost.
    Lost,
}

/// What the supervisor knows.
#[derive(Debug)]
pub(super) struct Supervisor<'a> {
    hold: LockMonitor,
    clock: Clock,
    signals: &'a mut Signals,
    terminal: Option<Terminal>,
    group: Group,
    watchdog: Option<Watching>,
    grace: Duration,
    /// How often the watchdog is told how the deadline has moved.
    pace: Duration,
    deadline: Moment,
    started: bool,
    /// How the group's leader, the command itself, ended.
    command: Option<Exit>,
    reaped: bool,
    /// Once the lock is lost: when KILL is due.
    kill_at: Option<Moment>,
    /// The command was ended from the terminal that it had, by this signal.
    interrupted: Option<Signal>,
    /// The next TSTP that arrives is our own.
    own_stop: bool,
    complained: bool,
}

impl<'a> Supervisor<'a> {
    /// Starts command and watchdog; the command waits for [`watch`](Self::watch).
    pub(super) async fn start(
        guard: &LockGuard,
        ttl: Duration,
        args: &Run,
        signals: &'a mut Signals,
    ) -> Result<Self, Failure> {
        signals.catch_more()?;
        wait::adopt_orphans();
        let variables = [("FENCELOCK_NAME", guard.name().to_string()), ("FENCELOCK_TOKEN", guard.token().to_string())];
        let group = child::start(&args.command, variables).map_err(|e| Failure::system("cannot start", e))?;
        let (hold, clock) = (guard.monitor(), Clock::system());
        let deadline = deadline(&clock, &hold);
        let mut supervisor = Self {
            hold,
            clock,
            signals,
            terminal: Terminal::open(),
            group,
            watchdog: None,
            grace: args.kill_after,
            pace: (ttl / 6).clamp(Duration::from_millis(5), Duration::from_millis(250)),
            deadline,
            started: false,
            command: None,
            reaped: false,
            kill_at: None,
            interrupted: None,
            own_stop: false,
            complained: false,
        };
        match Watching::start(group, args.kill_after, deadline).await {
            Ok(watchdog) => supervisor.watchdog = Some(watchdog),
            Err(e) => {
                // It has not become the command yet, so it is alone and dies at once.
                group.signal(Signal::KILL).ok();
                return Err(Failure::system("cannot start the watchdog", e));
            }
        }
        Ok(supervisor)
    }

    /// Runs the command to its end: until no process of its group is left.
    pub(super) async fn watch(mut self) -> Result<End, Failure> {
        loop {
            self.look_after_children().await;
            if self.is_over().await {
                break;
            }
            let pause = self.pause();
            tokio::select! {
                biased;
                reason = self.hold.lost(), if self.kill_at.is_none() => self.lose(reason),
                signal = self.signals.next() => self.heed(signal),
                () = tokio::time::sleep(pause) => {}
            }
            self.keep_time();
        }
        drop(self.terminal.take());
        if let Some(signal) = self.interrupted {
            // What the terminal would have done, had the command stayed in our group.
            let _ = rustix::process::kill_current_process_group(signal);
        }
        match (self.kill_at, self.command) {
            (None, Some(exit)) => Ok(End::Command(exit.code)),
            _ => Ok(End::Lost),
        }
    }

    fn pause(&self) -> Duration {
        if self.kill_at.is_some() || self.command.is_some() { self.pace.min(LOOK) } else { self.pace }
    }

    /// Tells the watchdog the deadline; kills what is due to be killed.
    fn keep_time(&mut self) {
        if let Some(kill_at) = self.kill_at {
            if self.clock.now() >= kill_at {
                self.send(Signal::KILL);
            }
        } else if self.hold.is_held() {
            self.deadline = deadline(&self.clock, &self.hold);
            if let Some(watchdog) = &mut self.watchdog {
                watchdog.tell(self.deadline);
            }
        }
    }

    fn lose(&mut self, reason: LossReason) {
        say(format_args!("{}: the lock was lost: {reason}; the command is stopped", clean(self.hold.name().as_str())));
        let now = self.clock.now();
        let can_wait = matches!(reason, LossReason::Expired | LossReason::MaxHold) && self.started;
        if !can_wait {
            self.kill_at = Some(now);
            return;
        }
        let deadline = self.deadline.min(now);
        self.kill_at = Some(deadline.plus(self.grace));
        let watched = self.is_watched();
        // The watchdog sends TERM, and only it, so that nobody gets two.
        match self.watchdog.as_mut().filter(|_| watched) {
            Some(watchdog) => watchdog.tell(deadline),
            None => self.send(Signal::TERM),
        }
    }

    fn send(&mut self, signal: Signal) {
        if let Err(e) = self.group.signal(signal)
            && !std::mem::replace(&mut self.complained, true)
        {
            say(format_args!("cannot signal every process of the command: {e}"));
        }
    }

    fn heed(&mut self, signal: Signal) {
        match signal {
            Signal::CHILD => {}
            Signal::CONT => self.resume(),
            Signal::TSTP if std::mem::take(&mut self.own_stop) => {}
            Signal::TSTP => {
                self.send(Signal::TSTP);
                if self.command.is_some() {
                    // Nobody would tell us that what is left of the group has stopped.
                    stop_ourselves();
                }
            }
            passed_on => self.send(passed_on),
        }
    }

    /// Sees what became of the command, the watchdog and orphans.
    async fn look_after_children(&mut self) {
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
        if !self.is_watched() && self.kill_at.is_none() && !self.reaped {
            self.watch_again().await;
        }
        wait::reap_orphans([Some(leader).filter(|_| !self.reaped), self.watchdog.as_ref().map(Watching::pid)]);
    }

    fn is_watched(&mut self) -> bool {
        self.watchdog.as_mut().is_some_and(|watchdog| !watchdog.has_ended())
    }

    /// Replaces a watchdog that somebody has ended.
    async fn watch_again(&mut self) {
        self.watchdog = None;
        match Watching::start(self.group, self.grace, self.deadline).await {
            Ok(watchdog) => self.watchdog = Some(watchdog),
            Err(e) => say(format_args!("the watchdog has ended and cannot be started again: {e}")),
        }
    }

    /// Whether no process of the group is left; then the number of the group is free.
    async fn is_over(&mut self) -> bool {
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

    /// Whether a process of the group is alive beside the command, as far as can be seen. Reaps those that are not.
    fn is_anybody_left(&self) -> bool {
        let Some(members) = self.group.members() else { return self.reaped && !self.group.is_gone() };
        for pid in members.dead.iter().filter(|pid| **pid != self.group.leader()) {
            wait::reap(*pid);
        }
        !members.alive.is_empty()
    }

    /// Whether killed processes will not die, in which case waiting helps nobody.
    fn is_hopeless(&mut self) -> bool {
        let hopeless = self.kill_at.is_some_and(|kill_at| self.clock.now() >= kill_at.plus(DEATH));
        if hopeless {
            say("processes of the command were killed and have not died");
        }
        hopeless
    }

    /// The command has stopped: at its very start, from the terminal, or for want of the terminal.
    fn command_stopped(&mut self, signal: i32) {
        if !self.started {
            self.begin();
            return;
        }
        let Some(terminal) = &mut self.terminal else { return };
        let signal = Signal::from_named_raw(signal);
        match signal {
            Some(Signal::TTIN | Signal::TTOU) if terminal.give(self.group) => self.send(Signal::CONT),
            Some(Signal::TSTP) if group::we_are_orphaned() => self.send(Signal::CONT),
            Some(Signal::TSTP | Signal::TTIN | Signal::TTOU) => self.suspend(),
            Some(Signal::STOP) if terminal.is_given() => self.suspend(),
            _ => {}
        }
    }

    fn begin(&mut self) {
        if !self.hold.is_held() {
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
    fn resume(&mut self) {
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

fn stop_ourselves() {
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
}

/// The hold's deadline on `clock`, or a little before it.
fn deadline(clock: &Clock, hold: &LockMonitor) -> Moment {
    let mut deadline = clock.now();
    // Read before what remains, so that a delay between the two only makes it earlier;
    // after a long one it would be much too early.
    for _ in 0..3 {
        let before = clock.now();
        deadline = before.plus(hold.remaining());
        if clock.now().since(before) < Duration::from_millis(1) {
            break;
        }
    }
    deadline
}
