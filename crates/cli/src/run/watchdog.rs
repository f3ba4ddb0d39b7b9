//! The watchdog's own side: a process that stops the command's group when the
//! supervisor cannot.

use super::group::Group;
use crate::exit;
use crate::output::{say, tell};
use fencelock::{Clock, Moment};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write, stdin, stdout};
use std::time::Duration;

/// A timer stops while the machine is suspended and the clock does not, so the
/// clock is read again this often.
const LOOK: Duration = Duration::from_millis(100);
/// How long after the deadline TERM is left to the supervisor, which may be
/// stopped: only one of the two is to send it.
pub(super) const LAG: Duration = Duration::from_millis(50);
/// How often, and how soon after another, strays are killed: one may make others meanwhile.
const KILLS: u32 = 400;
const PAUSE: Duration = Duration::from_millis(5);
/// What the watchdog says once it watches.
pub(super) const READY: u8 = b'\n';

/// Runs the watchdog: arguments are the group, the grace in milliseconds and the
/// claim's id, standard input brings deadlines, standard output tells that it watches.
pub(super) fn main(mut args: impl Iterator<Item = OsString>) -> u8 {
    let mut number = || args.next()?.to_str()?.parse::<u64>().ok();
    let group = number().and_then(|n| i32::try_from(n).ok()).filter(|n| *n > 1).and_then(Pid::from_raw);
    let (Some(group), Some(grace), Some(claim)) = (group, number(), args.next()) else {
        say("this is for fencelock's own use");
        return exit::USAGE;
    };
    leave();
    let mut watchdog = Watchdog {
        group: Group::new(group, claim.to_str().unwrap_or_default()),
        grace: Duration::from_millis(grace),
        clock: Clock::system(),
        news: None,
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
    // Not the program's own name: `pkill fencelock` must not end the watchdog too.
    let _ = rustix::thread::set_name(c"lock-watchdog");
}

/// What the supervisor tells: the deadline, and whether it has sent TERM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct News {
    deadline: Moment,
    warned: bool,
}

/// One message: the deadline in nanoseconds of the clock, least significant byte
/// first, and 1 if TERM has been sent.
pub(super) const MESSAGE: usize = 9;

impl News {
    pub(super) fn deadline(deadline: Moment) -> Self {
        Self { deadline, warned: false }
    }

    /// TERM has been sent.
    pub(super) fn warned(deadline: Moment) -> Self {
        Self { deadline, warned: true }
    }

    pub(super) fn to_bytes(self) -> [u8; MESSAGE] {
        let [a, b, c, d, e, f, g, h] = self.deadline.as_nanos().to_le_bytes();
        [a, b, c, d, e, f, g, h, self.warned.into()]
    }

    fn from_bytes([a, b, c, d, e, f, g, h, warned]: [u8; MESSAGE]) -> Self {
        let nanos = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        Self { deadline: Moment::from_nanos(nanos), warned: warned != 0 }
    }
}

struct Watchdog {
    group: Group,
    grace: Duration,
    clock: Clock,
    /// The newest news; whether TERM has been sent by either.
    news: Option<News>,
    unread: Vec<u8>,
}

impl Watchdog {
    fn watch(&mut self) -> u8 {
        loop {
            // News first: it may say that TERM has been sent.
            match self.listen() {
                Heard::News => {}
                Heard::Interrupted => continue,
                Heard::End => {
                    self.kill();
                    tell("the supervisor of the command was killed, and so is the command");
                    return exit::OK;
                }
            }
            if self.act(self.clock.now()) {
                return exit::OK;
            }
        }
    }

    /// Does what is due; true once nothing is left to do.
    fn act(&mut self, now: Moment) -> bool {
        let Some(News { deadline, warned }) = self.news else { return false };
        if now >= deadline.plus(self.grace) {
            self.kill();
            return true;
        }
        if !warned && now >= deadline.plus(LAG) {
            self.news = Some(News::warned(deadline));
            self.send(Signal::TERM);
        }
        false
    }

    /// Kills the group at once, and the strays until none is left.
    fn kill(&self) {
        for _ in 0..KILLS {
            self.send(Signal::KILL);
            if !self.group.has_strays() {
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn send(&self, signal: Signal) {
        if let Err(e) = self.group.signal(signal) {
            tell(format_args!("cannot signal every process of the command: {e}"));
        }
    }

    /// Waits for news or the next thing to do.
    fn listen(&mut self) -> Heard {
        let input = stdin();
        let mut news = [PollFd::new(&input, PollFlags::IN)];
        let pause = self.pause(self.clock.now());
        match poll(&mut news, Timespec::try_from(pause).ok().as_ref()) {
            Err(Errno::INTR) => return Heard::Interrupted,
            Ok(0) | Err(_) => return Heard::News,
            Ok(_) => {}
        }
        let mut buffer = [0; 64 * MESSAGE];
        match input.lock().read(&mut buffer) {
            Err(e) if e.kind() == ErrorKind::Interrupted => Heard::Interrupted,
            Ok(0) | Err(_) => Heard::End,
            Ok(n) => {
                self.unread.extend(buffer.iter().take(n));
                self.heed();
                Heard::News
            }
        }
    }

    fn pause(&self, now: Moment) -> Duration {
        let wait = |news: News| if news.warned { self.grace } else { self.grace.min(LAG) };
        let next = self.news.map(|news| news.deadline.plus(wait(news)));
        next.map_or(LOOK, |next| next.since(now).min(LOOK))
    }

    /// Takes the newest whole message.
    fn heed(&mut self) {
        let whole = self.unread.len() / MESSAGE * MESSAGE;
        let read: Vec<_> = self.unread.drain(..whole).collect();
        let newest = read.rchunks_exact(MESSAGE).next().and_then(|message| message.try_into().ok());
        if let Some(mut news) = newest.map(News::from_bytes) {
            // An earlier deadline is the same loss, of which the command has been warned.
            news.warned |= self.news.is_some_and(|old| old.warned && old.deadline >= news.deadline);
            self.news = Some(news);
        }
    }
}

/// What came of listening.
enum Heard {
    /// News or nothing: it is time to look at the clock.
    News,
    Interrupted,
    /// The supervisor is gone.
    End,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watchdog() -> Watchdog {
        let (clock, grace) = (Clock::system(), Duration::from_secs(1));
        // No process has this number, so nobody is signalled.
        let group = Group::new(Pid::from_raw(i32::MAX).unwrap(), "");
        Watchdog { group, grace, clock, news: None, unread: Vec::new() }
    }

    fn at(nanos: u64) -> Moment {
        Moment::from_nanos(nanos)
    }

    fn is_warned(dog: &Watchdog) -> bool {
        dog.news.is_some_and(|news| news.warned)
    }

    #[test]
    fn the_newest_whole_message_counts() {
        let mut dog = watchdog();
        let messages = [News::warned(at(1)), News::deadline(at(u64::MAX))];
        dog.unread.extend(messages.iter().flat_map(|news| news.to_bytes()).chain([9; 3]));
        dog.heed();
        assert_eq!(dog.news, Some(News::deadline(at(u64::MAX))));
        assert_eq!(dog.unread, [9; 3]);
    }

    #[test]
    fn term_shortly_after_the_deadline_kill_after_the_grace() {
        let mut dog = watchdog();
        assert!(!dog.act(at(u64::MAX)), "no deadline is known yet");
        dog.news = Some(News::deadline(at(100)));
        assert!(!dog.act(at(99).plus(LAG)) && !is_warned(&dog), "the supervisor's to send");
        assert!(!dog.act(at(100).plus(LAG)) && is_warned(&dog));
        assert!(!dog.act(at(100).plus(Duration::from_nanos(999_999_999))));
        assert!(dog.act(at(100).plus(Duration::from_secs(1))));
    }

    #[test]
    fn a_later_deadline_takes_the_warning_back() {
        let mut dog = watchdog();
        dog.news = Some(News::warned(at(100)));
        dog.unread.extend(News::deadline(at(200)).to_bytes());
        dog.heed();
        assert!(!is_warned(&dog) && !dog.act(at(150)));
        dog.act(at(200).plus(LAG));
        dog.unread.extend(News::deadline(at(150)).to_bytes());
        dog.heed();
        assert!(is_warned(&dog), "an earlier deadline is the same loss");
    }

    #[test]
    fn the_clock_is_read_often() {
        let mut dog = watchdog();
        assert_eq!(dog.pause(at(0)), LOOK);
        dog.news = Some(News::deadline(at(1_000_000)));
        assert_eq!(dog.pause(at(0).plus(LAG)), Duration::from_millis(1));
        dog.news = Some(News::warned(at(1_000_000)));
        assert_eq!(dog.pause(at(1_000_000)), LOOK);
        dog.grace = Duration::ZERO;
        dog.news = Some(News::deadline(at(1_000_000)));
        assert_eq!(dog.pause(at(0)), Duration::from_millis(1), "no grace, no lag");
    }
}
