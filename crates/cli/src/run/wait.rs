//! What became of child processes.

use rustix::process::{Pid, WaitId, WaitIdOptions, WaitIdStatus, waitid};

/// How a child or a wait ended, as an exit code and the signal that ended it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exit {
    pub(super) code: u8,
    pub(super) signal: Option<i32>,
}

/// Whether the child has ended, and how. It is not reaped, so its number stays its own.
pub(super) fn exited(child: Pid) -> Option<Exit> {
    let status = ask(child, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
    if let Some(code) = status.exit_status() {
        return Some(Exit { code: u8::try_from(code & 0xff).unwrap_or(u8::MAX), signal: None });
    }
    let signal = status.terminating_signal();
    Some(Exit { code: crate::exit::signalled(signal.unwrap_or(i32::MAX)), signal })
}

/// The signal by which the child has been stopped since this was last asked.
pub(super) fn stopped(child: Pid) -> Option<i32> {
    ask(child, WaitIdOptions::STOPPED)?.stopping_signal()
}

/// Reaps the child if it has ended and is ours.
pub(super) fn reap(child: Pid) {
    let _ = ask(child, WaitIdOptions::EXITED);
}

fn ask(child: Pid, options: WaitIdOptions) -> Option<WaitIdStatus> {
    waitid(WaitId::Pid(child), options | WaitIdOptions::NOHANG).ok().flatten()
}

/// Takes over the descendants whose parents end before them, where the system has that.
pub(super) fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    if let Err(e) = rustix::process::set_child_subreaper(Some(rustix::process::getpid())) {
        crate::output::tell(format_args!("processes that the command leaves in the background may go unseen: {e}"));
    }
}

/// Reaps the orphans that have ended, but never one of `ours`.
pub(super) fn reap_orphans(ours: [Option<Pid>; 2]) {
    #[cfg(target_os = "linux")]
    {
        use nix::sys::wait::{Id, WaitPidFlag, waitid};
        let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        while let Some(pid) = waitid(Id::All, look).ok().and_then(|status| status.pid()) {
            let Some(pid) = Pid::from_raw(pid.as_raw()) else { return };
            if ours.contains(&Some(pid)) {
                // The system names the same one again, whoever waits behind it.
                let others = super::group::dead_children().into_iter().filter(|pid| !ours.contains(&Some(*pid)));
                others.for_each(reap);
                return;
            }
            reap(pid);
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = ours;
}
