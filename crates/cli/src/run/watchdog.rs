//! The watchdog's own side: a process that stops the command's group when the
//! supervisor cannot.

use super::group::Group;
use crate::exit;
use crate::output::say;
use fencelock::{Clock, Moment};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal};
use std::ffi::OsString;
use std::io::{Read, Write, stdin, stdout};
use std::time::Duration;

/// A timer stops while the machine is suspended and the clock does not, so the
/// clock is read again this often.
const LOOK: Duration = Duration::from_millis(100);
/// One message: the deadline in nanoseconds of the clock, least significant byte first.
pub(super) const MESSAGE: usize = 8;
/// What the watchdog says once it watches.
pub(super) const READY: u8 = b'\n';

/// Runs the watchdog: arguments are the group and the grace in milliseconds,
/// standard input brings deadlines, standard output tells that it watches.
pub(super) fn main(mut args: impl Iterator<Item = OsString>) -> u8 {
    let mut number = || args.next()?.to_str()?.parse::<u64>().ok();
    let group = number().and_then(|n| i32::try_from(n).ok()).filter(|n| *n > 1).and_then(Pid::from_raw);
    let (Some(group), Some(grace)) = (group, number()) else {
        say("this is for fencelock's own use");
        return exit::USAGE;
    };
    leave();
    let mut watchdog = Watchdog {
        group: Group::new(group),
        grace: Duration::from_millis(grace),
        clock: Clock::system(),
        deadline: None,
        warned: false,
        unread: Vec::new(),
    };
    if stdout().write_all(&[READY]).and_then(|()| stdout().flush()).is_err() {
        return exit::SYSTEM;
    }
    watchdog.watch()
}

/// Leaves what the supervisor's surroundings could do to this process: the
/// terminal, a stop or signal for the group, the working directory.
fn leave() {
    let _ = rustix::process::setsid();
    let _ = rustix::process::chdir("/");
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_name(c"fencelock-watch");
}

struct Watchdog {
    group: Group,
    grace: Duration,
    clock: Clock,
    deadline: Option<Moment>,
    /// TERM has been sent for this deadline.
    warned: bool,
    unread: Vec<u8>,
}

impl Watchdog {
    fn watch(&mut self) -> u8 {
        loop {
            if self.act(self.clock.now()) {
                return exit::OK;
            }
            if !self.listen() {
                self.send(Signal::KILL);
                say("the supervisor of the command was killed, and so is the command");
                return exit::OK;
            }
        }
    }

    /// Does what is due; true once nothing is left to do.
    fn act(&mut self, now: Moment) -> bool {
        let Some(deadline) = self.deadline.filter(|deadline| *deadline <= now) else { return false };
        if now >= deadline.plus(self.grace) {
            self.send(Signal::KILL);
            return true;
        }
        if !self.warned {
            self.warned = true;
            self.send(Signal::TERM);
        }
        false
    }

    fn send(&self, signal: Signal) {
        if let Err(e) = self.group.signal(signal) {
            say(format_args!("cannot signal every process of the command: {e}"));
        }
    }

    /// Waits for news or the next thing to do; false if the supervisor is gone.
    fn listen(&mut self) -> bool {
        let input = stdin();
        let mut news = [PollFd::new(&input, PollFlags::IN)];
        let pause = self.pause(self.clock.now());
        match poll(&mut news, Timespec::try_from(pause).ok().as_ref()) {
            Ok(0) | Err(_) => return true,
            Ok(_) => {}
        }
        let mut buffer = [0; 64 * MESSAGE];
        match input.lock().read(&mut buffer) {
            Ok(0) | Err(_) => false,
            Ok(n) => {
                self.unread.extend(buffer.iter().take(n));
                self.heed();
                true
            }
        }
    }

    fn pause(&self, now: Moment) -> Duration {
        let next = self.deadline.map(|deadline| if self.warned { deadline.plus(self.grace) } else { deadline });
        next.map_or(LOOK, |next| next.since(now).min(LOOK))
    }

    /// Takes the newest whole message.
    fn heed(&mut self) {
        let whole = self.unread.len() / MESSAGE * MESSAGE;
        let read: Vec<_> = self.unread.drain(..whole).collect();
        let newest = read.rchunks_exact(MESSAGE).next().and_then(|message| message.try_into().ok());
        if let Some(message) = newest {
            let deadline = Moment::from_nanos(u64::from_le_bytes(message));
            self.warned &= self.deadline >= Some(deadline);
            self.deadline = Some(deadline);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watchdog() -> Watchdog {
        let (clock, grace) = (Clock::system(), Duration::from_secs(1));
        // No process has this number, so nobody is signalled.
        let group = Group::new(Pid::from_raw(i32::MAX).unwrap());
        Watchdog { group, grace, clock, deadline: None, warned: false, unread: Vec::new() }
    }

    #[test]
    fn the_newest_whole_message_counts() {
        let mut dog = watchdog();
        dog.unread.extend([1_u64, 2].iter().flat_map(|n| n.to_le_bytes()).chain([9; 3]));
        dog.heed();
        assert_eq!(dog.deadline, Some(Moment::from_nanos(2)));
        assert_eq!(dog.unread, [9; 3]);
    }

    #[test]
    fn term_at_the_deadline_kill_after_the_grace() {
        let mut dog = watchdog();
        let at = Moment::from_nanos;
        assert!(!dog.act(at(u64::MAX)), "no deadline is known yet");
        dog.deadline = Some(at(100));
        assert!(!dog.act(at(99)) && !dog.warned);
        assert!(!dog.act(at(100)) && dog.warned);
        assert!(!dog.act(at(100).plus(Duration::from_nanos(999_999_999))));
        assert!(dog.act(at(100).plus(Duration::from_secs(1))));
    }

    #[test]
    fn a_later_deadline_takes_the_warning_back() {
        let mut dog = watchdog();
        let at = Moment::from_nanos;
        dog.deadline = Some(at(100));
        dog.act(at(100));
        dog.unread.extend(200_u64.to_le_bytes());
        dog.heed();
        assert!(!dog.warned && !dog.act(at(150)));
        dog.act(at(200));
        dog.unread.extend(150_u64.to_le_bytes());
        dog.heed();
        assert!(dog.warned, "an earlier deadline is the same loss");
    }

    #[test]
    fn the_clock_is_read_often() {
        let mut dog = watchdog();
        let at = Moment::from_nanos;
        assert_eq!(dog.pause(at(0)), LOOK);
        dog.deadline = Some(at(1_000_000));
        assert_eq!(dog.pause(at(0)), Duration::from_millis(1));
        dog.warned = true;
        assert_eq!(dog.pause(at(1_000_000)), LOOK);
    }
}
