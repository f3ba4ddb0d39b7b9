//! The supervisor's side of the watchdog.

use super::group::{Group, is_stopped};
use super::parts;
use super::watchdog::{News, READY};
use fencelock::Moment;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::Pid;
use std::io::{self, Error, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdin, Stdio};
use std::time::Duration;
use tokio::net::unix::pipe::Receiver;
use tokio::time::timeout;

/// The longest that the watchdog may take to start.
const START: Duration = Duration::from_secs(10);

/// A watchdog that watches.
///
/// # Drop
/// Calls it off, so that it never signals a group whose number is another's by then.
#[derive(Debug)]
pub(super) struct Watching {
    process: Child,
    deadlines: ChildStdin,
    last: Option<News>,
}

impl Watching {
    /// Starts a watchdog for `group`, and returns once it watches.
    pub(super) async fn start(group: Group, grace: Duration, deadline: Moment) -> io::Result<Self> {
        let grace = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        let args = [group.leader().as_raw_nonzero().to_string(), grace.to_string(), group.claim()];
        let mut process = parts::watchdog(args.map(Into::into)).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (Some(deadlines), Some(output)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(Error::other("no pipes"));
        };
        let mut watching = Self { process, deadlines, last: None };
        // A watchdog that somebody has stopped must not stop the supervisor too.
        fcntl_setfl(&watching.deadlines, fcntl_getfl(&watching.deadlines)? | OFlags::NONBLOCK)?;
        watching.tell(News::deadline(deadline));
        let output = Receiver::from_owned_fd(OwnedFd::from(output))?;
        timeout(START, output.readable()).await.map_err(|_| Error::from(ErrorKind::TimedOut))??;
        let mut said = [0];
        match output.try_read(&mut said)? {
            1 if said == [READY] => Ok(watching),
            _ => Err(Error::from(ErrorKind::UnexpectedEof)),
        }
    }

    /// Tells what is new.
    pub(super) fn tell(&mut self, news: News) {
        if self.last != Some(news) {
            // Short enough to be written whole or not at all. If the pipe is full or
            // broken, the next look at the hold tries again or finds the watchdog dead.
            if self.deadlines.write_all(&news.to_bytes()).is_ok() {
                self.last = Some(news);
            }
        }
    }

    /// Whether somebody has ended it.
    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.process.try_wait(), Ok(None))
    }

    /// Whether somebody has stopped it, as far as the system tells.
    pub(super) fn is_stopped(&self) -> bool {
        is_stopped(self.pid())
    }

    pub(super) fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        // It has nothing to tidy up, and a signal cannot get lost as a farewell could.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
