//! Nothing is left behind: one folder holds all that a run makes, with the ids of its processes.

mod networks;
mod processes;

use fencelock_lab::Failure;
use processes::Process;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tempfile::TempDir;

const PREFIX: &str = "fencelock-lab-run-";
/// Whose the folder is, by process id and the time at which that process started.
const OWNER: &str = "owner";
/// Every process that was started, in the same way.
const PROCESSES: &str = "processes";

/// The folder of this run, in which all others are made.
///
/// # Drop
/// Removes it.
pub(crate) struct Place {
    folder: TempDir,
    ended: Arc<AtomicBool>,
}

impl Place {
    /// Removes what runs that were killed have left, and makes a folder for this one.
    pub(crate) fn make() -> Result<Self, Failure> {
        use std::os::unix::fs::PermissionsExt as _;
        let parent = tempfile::env::temp_dir();
        sweep(&parent);
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(&parent)?;
        // Servers run as other users, in folders of their own below it.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;
        let me = Process::with_id(std::process::id()).ok_or_else(|| Failure::new("there is no /proc"))?;
        std::fs::write(folder.path().join(OWNER), me.line())?;
        tempfile::env::override_temp_dir(folder.path())
            .map_err(|before| Failure::new(format!("temporary folders are in {} already", before.display())))?;
        let ended = Arc::new(AtomicBool::new(false));
        processes::note(folder.path().join(PROCESSES), Arc::clone(&ended));
        Ok(Self { folder, ended })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

/// Removes folders whose owner is gone, after what its processes have left.
fn sweep(parent: &Path) {
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten().map(|entry| entry.path());
    let runs = entries.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX)));
    for run in runs {
        // One without an owner is being made just now.
        let owner = std::fs::read_to_string(run.join(OWNER)).ok().and_then(|line| Process::of_line(&line));
        if let Some(owner) = owner.filter(|owner| !owner.is_alive()) {
            remove(&run, owner);
        }
    }
}

/// Ends what a run has started, by the ids that it noted, and removes its networks and its folder.
fn remove(run: &Path, owner: Process) {
    let noted = std::fs::read_to_string(run.join(PROCESSES)).unwrap_or_default();
    processes::end(noted.lines().filter_map(Process::of_line));
    networks::remove_of(owner.id());
    let _ = std::fs::remove_dir_all(run);
}

/// What this process has started and made before it became what runs this.
pub(crate) fn of_this_process(place: &Path) -> ExitCode {
    processes::end(processes::descendants(std::process::id()).into_iter());
    if let Some(me) = Process::with_id(std::process::id()) {
        remove(place, me);
    }
    ExitCode::from(130)
}

/// The first signal ends the run in order; the second at once, and leaves nothing behind either.
pub(crate) fn end_on_signals(place: &Path) {
    let place: PathBuf = place.to_owned();
    let (ready, is_ready) = mpsc::channel();
    std::thread::spawn(move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
        runtime.block_on(async {
            use tokio::signal::unix::{SignalKind, signal};
            let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
            let mut signals: Vec<_> = kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect();
            let _ = ready.send(());
            for count in 0.. {
                std::future::poll_fn(|context| {
                    if signals.iter_mut().any(|signal| signal.poll_recv(context).is_ready()) {
                        std::task::Poll::Ready(())
                    } else {
                        std::task::Poll::Pending
                    }
                })
                .await;
                if count == 0 {
                    crate::runner::ENDED.store(true, Ordering::Relaxed);
                    continue;
                }
                // In its place, so that no thread of this one goes on to make what is being removed.
                let program = std::env::current_exe().unwrap_or_default();
                let failed = std::process::Command::new(program).arg("clean-up").arg(&place).exec();
                eprintln!("fencelock-lab: {failed}");
                std::process::exit(130);
            }
        });
    });
    // Whoever sends a signal from now on finds it heeded.
    let _ = is_ready.recv_timeout(Duration::from_secs(5));
}
