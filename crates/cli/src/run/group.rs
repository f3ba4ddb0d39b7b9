//! The command's process group.

use super::strays::Mark;
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use std::time::Duration;

/// How long the server keeps the lock closed after the holder's deadline, and
/// after a forced release: as long as the holder needs to be rid of its command,
/// which is `need`, what the two clocks may differ by in that time (`drift`, in
/// parts per million), and the time that processes take to die.
pub(super) fn lock_delay(need: Duration, drift: u32) -> Duration {
    // need / (1 - drift): at half the rate, which is the most that is allowed for, twice as long.
    let rest = 1_000_000_u128.saturating_sub(u128::from(drift)).max(500_000);
    let stretched = need.as_nanos().saturating_mul(1_000_000).div_ceil(rest);
    let stretched = u64::try_from(stretched).map_or(Duration::MAX, Duration::from_nanos);
    stretched.saturating_add(Duration::from_millis(250))
}

/// A process group, by its leader, and the command's processes that have left it.
///
/// The number stays the group's for as long as the leader is not reaped or the
/// group has another member; only in that time is it safe to signal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    leader: Pid,
    mark: Option<Mark>,
}

impl Group {
    /// The group of the command under the claim with this id.
    pub(super) fn new(leader: Pid, claim: &str) -> Self {
        Self { leader, mark: Mark::of(leader, claim) }
    }

    pub(super) fn leader(self) -> Pid {
        self.leader
    }

    /// The claim's id, empty if the command is not known by it.
    pub(super) fn claim(self) -> String {
        self.mark.map(|mark| mark.claim()).unwrap_or_default()
    }

    /// Signals every process of the group, and the strays too unless the signal is
    /// one of job control. What is gone needs no signal.
    ///
    /// # Errors
    /// If there is a process that we may not signal.
    pub(super) fn signal(self, signal: Signal) -> Result<(), Errno> {
        let mut sent = match rustix::process::kill_process_group(self.leader, signal) {
            Err(Errno::SRCH) => Ok(()),
            sent => sent,
        };
        if !matches!(signal, Signal::TSTP | Signal::CONT) {
            for (mark, pid) in self.strays() {
                sent = sent.and(mark.signal(pid, signal));
            }
        }
        sent
    }

    /// Whether a process of the command is alive that has left the group.
    pub(super) fn has_strays(self) -> bool {
        // One look can miss a process that becomes another program just then.
        (0..2).any(|_| self.strays().next().is_some())
    }

    fn strays(self) -> impl Iterator<Item = (Mark, Pid)> {
        let all = self.mark.and_then(|mark| Some((mark, processes()?)));
        all.into_iter().flat_map(move |(mark, all)| {
            let is_one =
                move |pid: &Pid| group_of(*pid) != Some(self.leader.as_raw_nonzero().get()) && mark.is_on(*pid);
            all.filter(is_one).map(move |pid| (mark, pid))
        })
    }

    /// Whether no process of the group is left, dead ones that nobody reaped included.
    pub(super) fn is_gone(self) -> bool {
        rustix::process::test_kill_process_group(self.leader) == Err(Errno::SRCH)
    }

    /// Whether the leader sleeps without heed to signals while another process of the group is stopped.
    ///
    /// So it is when the terminal's stop meets a shell between `vfork` and
    /// `exec`: the new process stops, and the shell waits for it to go on, so
    /// that it never stops itself and nobody is told.
    pub(super) fn is_stuck(self) -> bool {
        let state = |pid: Pid| stat(pid).map(|(state, _)| state);
        state(self.leader) == Some('D')
            && self.members().is_some_and(|members| members.alive.iter().any(|pid| state(*pid) == Some('T')))
    }

    /// The processes of the group that are alive; `None` where the system does not tell.
    ///
    /// A list made while processes come and go can miss one: a hint that the
    /// group is empty, to be confirmed by [`is_gone`](Self::is_gone).
    pub(super) fn members(self) -> Option<Members> {
        let mut members = Members { alive: Vec::new(), dead: Vec::new() };
        for pid in processes()? {
            if group_of(pid) == Some(self.leader.as_raw_nonzero().get()) {
                if is_alive(pid) { members.alive.push(pid) } else { members.dead.push(pid) }
            }
        }
        Some(members)
    }
}

/// The processes of a group.
#[derive(Debug)]
pub(super) struct Members {
    pub(super) alive: Vec<Pid>,
    /// Those that have ended and that their parent has not reaped.
    pub(super) dead: Vec<Pid>,
}

/// The number of the process's group; 0 for one in another namespace, which
/// rustix takes for impossible.
pub(super) fn group_of(pid: Pid) -> Option<i32> {
    nix::unistd::getpgid(Some(number(pid))).ok().map(nix::unistd::Pid::as_raw)
}

fn number(pid: Pid) -> nix::unistd::Pid {
    nix::unistd::Pid::from_raw(pid.as_raw_nonzero().get())
}

/// All processes that this one can see, from `/proc`.
fn processes() -> Option<impl Iterator<Item = Pid>> {
    let entries = std::fs::read_dir("/proc").ok().filter(|_| cfg!(target_os = "linux"))?;
    Some(entries.flatten().filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)))
}

/// `proc_pid_stat(5)`: the fields after the name, which ends at the last parenthesis: state, parent, …
fn stat(pid: Pid) -> Option<(char, i32)> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    let mut fields = stat.get(stat.rfind(')')?.checked_add(1)?..)?.split_ascii_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

pub(super) fn parent_of(pid: Pid) -> Option<Pid> {
    stat(pid).and_then(|(_, parent)| Pid::from_raw(parent))
}

fn is_alive(pid: Pid) -> bool {
    stat(pid).is_some_and(|(state, _)| !matches!(state, 'Z' | 'X'))
}

/// Whether the process has been stopped, by a signal or a debugger.
pub(super) fn is_stopped(pid: Pid) -> bool {
    stat(pid).is_some_and(|(state, _)| matches!(state, 'T' | 't'))
}

/// This process's children that have ended and are not reaped yet.
#[cfg(target_os = "linux")]
pub(super) fn dead_children() -> Vec<Pid> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let is_one = |pid: &Pid| stat(*pid).is_some_and(|(state, parent)| state == 'Z' && parent == own);
    processes().map(|all| all.filter(is_one).collect()).unwrap_or_default()
}

/// Whether nobody is there who could continue this process's own group if it
/// stopped: no member has a parent in another group of the same session.
/// (`setpgid(2)` calls such a group orphaned.)
pub(super) fn we_are_orphaned() -> bool {
    let (own, session) = (nix::unistd::getpgrp().as_raw(), nix::unistd::getsid(None));
    let Some(processes) = processes() else { return false };
    !processes.filter(|pid| group_of(*pid) == Some(own)).any(|pid| {
        parent_of(pid).is_some_and(|parent| {
            group_of(parent).is_some_and(|group| group != own) && nix::unistd::getsid(Some(number(parent))) == session
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_stays_closed_for_longer_than_is_needed() {
        assert_eq!(lock_delay(Duration::ZERO, 10_000), Duration::from_millis(250));
        assert_eq!(lock_delay(Duration::from_secs(99), 10_000), Duration::from_millis(100_250));
        assert_eq!(lock_delay(Duration::from_secs(2), 500_000), Duration::from_millis(4_250));
        assert_eq!(lock_delay(Duration::MAX, 10_000), Duration::MAX);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_is_in_its_own_group() {
        let members = Group::new(Pid::from_raw(nix::unistd::getpgrp().as_raw()).unwrap(), "").members().unwrap();
        assert!(members.alive.contains(&rustix::process::getpid()));
    }
}
