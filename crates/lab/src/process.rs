//! One server process: started, stopped, continued, killed, started again.

use rustix::process::{Pid, Signal, kill_process};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Why a server is not there.
#[derive(Debug)]
pub struct Failure(String);

impl Failure {
    /// A failure with this message.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

impl From<std::io::Error> for Failure {
    fn from(e: std::io::Error) -> Self {
        Self(e.to_string())
    }
}

/// A server process with a folder of its own.
///
/// # Drop
/// Kills the process, stopped or not, waits for its end, and removes the folder.
/// The kernel kills it too when this process ends in any way.
pub struct Server {
    program: PathBuf,
    package: &'static str,
    arguments: Vec<String>,
    folder: TempDir,
    running: Option<Running>,
}

/// A child, and the thread that it was started from: the kernel ends the child with that thread.
struct Running {
    child: Child,
    _thread: mpsc::Sender<()>,
}

impl Server {
    /// A server that is not started yet. `package` is the Debian package that brings `program`.
    ///
    /// # Errors
    /// If no folder can be made for it.
    pub fn new(program: impl Into<PathBuf>, package: &'static str) -> Result<Self, Failure> {
        let folder = tempfile::Builder::new().prefix("fencelock-lab-").tempdir()?;
        Ok(Self { program: program.into(), package, arguments: Vec::new(), folder, running: None })
    }

    /// Adds arguments for every start from now on.
    #[must_use]
    pub fn with_arguments<S: Into<String>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// The server's own folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts it, and waits until `ready` says so, at most 30 s.
    ///
    /// # Errors
    /// If the program is missing, ends at once, or is not ready in time; the end of its log is part of it.
    pub fn start(&mut self, mut ready: impl FnMut() -> bool) -> Result<(), Failure> {
        self.running = Some(self.spawn()?);
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            if ready() {
                return Ok(());
            }
            if let Some(running) = &mut self.running
                && let Some(status) = running.child.try_wait()?
            {
                self.running = None;
                return Err(Failure(format!("{} ended with {status}: {}", self.program.display(), self.log_tail())));
            }
            if Instant::now() > end {
                self.kill();
                return Err(Failure(format!(
                    "{} is not ready after 30 s: {}",
                    self.program.display(),
                    self.log_tail()
                )));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn spawn(&self) -> Result<Running, Failure> {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.folder().join("log"))?;
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL"])
            .arg(&self.program)
            .args(&self.arguments)
            .current_dir(self.folder())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        // The death signal comes when the starting *thread* ends, and a test's ends early.
        let (started, spawned) = mpsc::channel();
        let (thread, ended) = mpsc::channel::<()>();
        std::thread::spawn(move || {
            let _ = started.send(command.spawn());
            let _ = ended.recv();
        });
        match spawned.recv() {
            Ok(Ok(child)) => Ok(Running { child, _thread: thread }),
            Ok(Err(e)) => Err(Failure(format!("{} (Debian package {}): {e}", self.program.display(), self.package))),
            Err(_) => Err(Failure("the starting thread ended".to_owned())),
        }
    }

    /// The process id, while it runs.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.running.as_ref().map(|running| running.child.id())
    }

    /// Sends a signal; false if it does not run.
    #[allow(clippy::must_use_candidate, reason = "mostly called for its effect")]
    pub fn signal(&self, signal: Signal) -> bool {
        let pid = self.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        pid.is_some_and(|pid| kill_process(pid, signal).is_ok())
    }

    /// Freezes it (SIGSTOP): connections stay open, nothing is answered from here on.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
        if let Some(id) = self.id() {
            until_stopped(id);
        }
    }

    /// Lets it go on (SIGCONT).
    pub fn cont(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills it (SIGKILL) and waits for its end; its folder stays.
    pub fn kill(&mut self) -> Option<ExitStatus> {
        let mut running = self.running.take()?;
        let _ = running.child.kill();
        let status = running.child.wait().ok();
        crate::remains::of_clock(running.child.id());
        status
    }

    /// The end of its log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let log = std::fs::read(self.folder().join("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let from = log.lines().count().saturating_sub(15);
        log.lines().skip(from).collect::<Vec<_>>().join("\n")
    }
}

/// Waits until each thread has stopped: one that runs elsewhere when the signal is sent goes on for a moment, and
/// may still answer. Not for ever, since a thread in the middle of a write to the disk stops after it.
pub(crate) fn until_stopped(id: u32) {
    let end = Instant::now() + Duration::from_secs(2);
    let folder = Path::new("/proc").join(id.to_string()).join("task");
    let has_stopped = |thread: &Path| {
        let stat = std::fs::read_to_string(thread.join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with(['T', 't', 'Z', 'X']))
    };
    while Instant::now() < end {
        let Ok(threads) = std::fs::read_dir(&folder) else { return };
        if threads.flatten().all(|thread| has_stopped(&thread.path())) {
            return;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("program", &self.program).field("id", &self.id()).finish_non_exhaustive()
    }
}
