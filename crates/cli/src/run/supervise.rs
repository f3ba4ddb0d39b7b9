//! The supervisor: holds the lock while the command runs, and stops the command when the lock is lost.

use super::child;
use super::group::Group;
use super::jobs;
use super::signals::Signals;
use super::terminal::Terminal;
use super::wait::{self, Exit};
use super::watchdog::{LAG, News};
use super::watching::Watching;
use crate::args::Run;
use crate::exit::Failure;
use crate::output::{clean, tell};
use fencelock::{Clock, LockGuard, LockMonitor, LossReason, Moment};
use rustix::process::Signal;
use std::pin::pin;
use std::time::Duration;

/// How often the group is looked at once the command has ended or the lock is lost.
const LOOK: Duration = Duration::from_millis(50);

/// How the command came to its end.
#[derive(Debug)]
pub(super) enum End {
    /// By itself or by a signal.
    Command(Exit),
    /// The lock was lost.
    Lost,
}

/// What the supervisor knows.
#[derive(Debug)]
pub(super) struct Supervisor<'a> {
    pub(super) hold: LockMonitor,
    pub(super) clock: Clock,
    pub(super) signals: &'a mut Signals,
    pub(super) terminal: Option<Terminal>,
    pub(super) group: Group,
    pub(super) watchdog: Option<Watching>,
    pub(super) grace: Duration,
    /// How often the watchdog is told how the deadline has moved.
    pub(super) pace: Duration,
    pub(super) deadline: Moment,
    pub(super) started: bool,
    /// How the group's leader, the command itself, ended.
    pub(super) command: Option<Exit>,
    pub(super) reaped: bool,
    /// Once the lock is lost: when KILL is due.
    pub(super) kill_at: Option<Moment>,
    /// The command was ended from the terminal that it had, by this signal.
    pub(super) interrupted: Option<Signal>,
    /// The next TSTP that arrives is our own.
    pub(super) own_stop: bool,
    pub(super) complained: bool,
    /// The group was stuck when it was last looked at.
    pub(super) stuck: bool,
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
        let group = child::start(&args.command, guard).map_err(|e| Failure::system("cannot start", e))?;
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
            stuck: false,
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
    /// `taken_away` returns if somebody else sees that the lock is not ours any more;
    /// if it `is_taken` already, the command does not begin.
    pub(super) async fn watch(mut self, is_taken: bool, taken_away: impl Future<Output = ()>) -> Result<End, Failure> {
        if is_taken {
            self.lose(LossReason::Revoked);
        }
        let mut taken_away = pin!(taken_away);
        loop {
            self.look_after_children().await;
            if self.is_over().await {
                break;
            }
            let pause = self.pause();
            tokio::select! {
                biased;
                reason = self.hold.lost(), if self.kill_at.is_none() => self.lose(reason),
                () = &mut taken_away, if self.kill_at.is_none() => self.lose(LossReason::Revoked),
                signal = self.signals.next() => self.heed(signal),
                () = tokio::time::sleep(pause) => {}
            }
            self.keep_time();
            self.unstick();
        }
        drop(self.terminal.take());
        if let Some(signal) = self.interrupted {
            // What the terminal would have done, had the command stayed in our group.
            let _ = rustix::process::kill_current_process_group(signal);
        }
        match (self.kill_at, self.command) {
            (None, Some(exit)) => Ok(End::Command(exit)),
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
                watchdog.tell(News::deadline(self.deadline));
            }
        }
    }

    fn lose(&mut self, reason: LossReason) {
        // Signals before words: whoever reads the words may be slow.
        let now = self.clock.now();
        // With these the service keeps the lock for the lock delay still.
        let kept = matches!(reason, LossReason::Expired | LossReason::MaxHold | LossReason::Degraded);
        let can_wait = kept && self.started;
        if can_wait {
            self.warn(now);
        } else {
            self.kill_at = Some(now);
            self.send(Signal::KILL);
        }
        tell(format_args!("{}: the lock was lost: {reason}; the command is stopped", clean(self.hold.name().as_str())));
    }

    /// Sends TERM, unless the watchdog has: nobody gets two.
    fn warn(&mut self, now: Moment) {
        let deadline = self.deadline.min(now);
        self.kill_at = Some(deadline.plus(self.grace));
        // The watchdog leaves the first moments to us, and is at work after them
        // unless it has ended or been stopped.
        let late = now >= deadline.plus(LAG / 2);
        let at_work = self.is_watched() && !self.watchdog.as_ref().is_some_and(Watching::is_stopped);
        let left_to_it = late && at_work;
        if !left_to_it {
            self.send(Signal::TERM);
        }
        if let Some(watchdog) = &mut self.watchdog {
            watchdog.tell(if left_to_it { News::deadline(deadline) } else { News::warned(deadline) });
        }
    }

    pub(super) fn send(&mut self, signal: Signal) {
        if let Err(e) = self.group.signal(signal)
            && !std::mem::replace(&mut self.complained, true)
        {
            tell(format_args!("cannot signal every process of the command: {e}"));
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
                    jobs::stop_ourselves();
                }
            }
            passed_on => self.send(passed_on),
        }
    }
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
