//! The signals that are sent to the supervisor.

use crate::exit::Failure;
use rustix::process::Signal;
use std::future::poll_fn;
use std::task::Poll;
use tokio::signal::unix::{self, SignalKind};

/// Those that are passed on to the command, and end a wait.
const PASSED_ON: [Signal; 6] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];

/// Signals in the order of their arrival, as far as the system keeps it.
#[derive(Debug)]
pub(super) struct Signals {
    streams: Vec<(Signal, unix::Signal)>,
    ignored: u64,
}

impl Signals {
    /// Catches the signals that end a wait, but those that whoever started us
    /// wants ignored (`nohup`, a background job of a script).
    pub(super) fn new() -> Result<Self, Failure> {
        let mut signals = Self { streams: Vec::new(), ignored: ignored() };
        signals.catch(PASSED_ON)?;
        Ok(signals)
    }

    /// Catches what tells of children and of job control too.
    pub(super) fn catch_more(&mut self) -> Result<(), Failure> {
        self.catch([Signal::CHILD, Signal::TSTP, Signal::CONT])
    }

    fn catch(&mut self, signals: impl IntoIterator<Item = Signal>) -> Result<(), Failure> {
        for signal in signals {
            let number = signal.as_raw();
            let bit = u32::try_from(number.saturating_sub(1)).ok().and_then(|shift| 1_u64.checked_shl(shift));
            let essential = matches!(signal, Signal::CHILD | Signal::CONT);
            if bit.is_some_and(|bit| self.ignored & bit != 0) && !essential {
                continue;
            }
            let stream = unix::signal(SignalKind::from_raw(number));
            self.streams.push((signal, stream.map_err(|e| Failure::system("cannot catch signals", e))?));
        }
        Ok(())
    }

    /// The next signal.
    ///
    /// # Cancel safety
    /// No signal is lost.
    pub(super) async fn next(&mut self) -> Signal {
        poll_fn(|cx| {
            for (signal, stream) in &mut self.streams {
                if stream.poll_recv(cx).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// The number of the next signal that ends a wait.
    pub(super) async fn ending(&mut self) -> i32 {
        loop {
            let signal = self.next().await;
            if PASSED_ON.contains(&signal) {
                return signal.as_raw();
            }
        }
    }
}

/// The signals that are ignored now, as a bit mask: `SigIgn` in `proc_pid_status(5)`.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
