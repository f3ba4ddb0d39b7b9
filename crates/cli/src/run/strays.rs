//! Processes of the command that have left its group but not its session, as
//! those under `timeout` in a script and the jobs of an interactive shell have.
//!
//! They are known by the claim's id, which the command has in its environment
//! and nobody else has. What has left the session too (`setsid`) has left for good.

use super::group::{group_of, parent_of};
use nix::unistd::getsid;
use rustix::io::Errno;
use rustix::process::{Pid, Signal};

/// The variable that holds the claim's id.
pub(super) const VARIABLE: &str = "FENCELOCK_CLAIM";

/// By what processes of the command are known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    /// The claim's id as it is written.
    claim: [u8; 32],
    session: nix::unistd::Pid,
}

impl Mark {
    /// The mark of the command whose first process is `leader`; `None` if it cannot be known by one.
    pub(super) fn of(leader: Pid, claim: &str) -> Option<Self> {
        let session = getsid(Some(nix::unistd::Pid::from_raw(leader.as_raw_nonzero().get()))).ok()?;
        Some(Self { claim: claim.as_bytes().try_into().ok()?, session })
    }

    pub(super) fn claim(&self) -> String {
        String::from_utf8_lossy(&self.claim).into_owned()
    }

    /// Whether the process is alive and the command's.
    pub(super) fn is_on(&self, pid: Pid) -> bool {
        let number = pid.as_raw_nonzero().get();
        if getsid(Some(nix::unistd::Pid::from_raw(number))) != Ok(self.session) {
            return false;
        }
        // Empty for one that is dead.
        let variables = std::fs::read(format!("/proc/{number}/environ")).unwrap_or_default();
        let is_ours = |entry: &[u8]| {
            let value = entry.strip_prefix(VARIABLE.as_bytes()).and_then(|rest| rest.strip_prefix(b"="));
            value == Some(&self.claim[..])
        };
        variables.split(|byte| *byte == 0).any(is_ours)
    }

    /// Signals a process that was found.
    ///
    /// All but KILL are for the first of each group: `timeout` passes them on, and nobody is to get two.
    pub(super) fn signal(&self, pid: Pid, signal: Signal) -> Result<(), Errno> {
        let group = group_of(pid);
        if signal != Signal::KILL && parent_of(pid).is_some_and(|parent| group_of(parent) == group) {
            return Ok(());
        }
        match self.send(pid, signal) {
            Err(Errno::SRCH) => Ok(()),
            sent => sent,
        }
    }

    #[cfg(target_os = "linux")]
    fn send(&self, pid: Pid, signal: Signal) -> Result<(), Errno> {
        use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        // Nobody keeps the number for us: by now it may be another's.
        if self.is_on(pid) { pidfd_send_signal(process, signal) } else { Ok(()) }
    }

    #[cfg(not(target_os = "linux"))]
    #[expect(clippy::unused_self, reason = "there is no way to tell")]
    fn send(&self, _: Pid, _: Signal) -> Result<(), Errno> {
        Ok(())
    }
}
