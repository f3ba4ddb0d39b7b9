//! Waking waiters in other processes and other clients of the file.
//!
//! SQLite tells nobody of a commit. A write to its log can be watched, but comes
//! before the commit can be seen, and every unrelated commit makes one. So who
//! frees a lock opens the log once more when the commit is through, and waiters
//! watch for that: nothing is missed by looking too early, acquires and renewals
//! wake nobody, and nothing is written. A process killed between the two costs
//! its waiters the safety poll.
//!
//! It must be the log: to close a descriptor drops all locks that the process
//! has on the file, as POSIX has it, and the log is the one that SQLite never locks.

use async_trait::async_trait;
use fencelock_core::{Error, ErrorKind, Hint, Hints, LockName, Result};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::inotify;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::watch;

/// Calls that come closer together wake once.
const SPACING: Duration = Duration::from_millis(5);

/// Watches one log for all waiters of a client, while there are any.
pub(crate) struct Watch {
    log: PathBuf,
    ears: Mutex<Weak<Ears>>,
}

/// The watch while somebody listens: a thread, as SQLite's own are, so that it
/// needs no runtime with an I/O driver and dies with none.
struct Ears {
    heard: watch::Receiver<()>,
    stop: OwnedFd,
}

impl Drop for Ears {
    fn drop(&mut self) {
        // Ends the thread; a counter at its start cannot be full.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
    }
}

struct Ear {
    heard: watch::Receiver<()>,
    _ears: Arc<Ears>,
}

/// Whether the log of the database at `file` can be watched.
pub(crate) fn works(file: &Path) -> bool {
    let Ok(descriptor) = watch_file(&log_of(file)) else { return false };
    // The kernel takes some milliseconds to end a watch, for which nobody here has to wait. Without a thread it is
    // closed at once.
    let _ = std::thread::Builder::new().name("fencelock-watch".to_owned()).spawn(move || drop(descriptor));
    true
}

fn log_of(file: &Path) -> PathBuf {
    let mut log = file.as_os_str().to_owned();
    log.push("-wal");
    log.into()
}

impl Watch {
    pub(crate) fn new(file: &Path) -> Self {
        Self { log: log_of(file), ears: Mutex::new(Weak::new()) }
    }

    /// Says that a lock was freed.
    pub(crate) fn wake(&self) {
        if let Err(error) = std::fs::File::open(&self.log) {
            tracing::debug!(target: "fencelock", engine = "sqlite", %error, "waiters are not woken");
        }
    }

    fn ears(&self) -> std::io::Result<Arc<Ears>> {
        let mut shared = self.ears.lock().unwrap_or_else(PoisonError::into_inner);
        // A thread that has ended, because its file is gone, wakes nobody.
        if let Some(ears) = shared.upgrade().filter(|ears| ears.heard.has_changed().is_ok()) {
            return Ok(ears);
        }
        let descriptor = watch_file(&self.log)?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC)?;
        let stopped = stop.try_clone()?;
        let (tell, heard) = watch::channel(());
        std::thread::Builder::new()
            .name("fencelock-watch".to_owned())
            .spawn(move || listen(&descriptor, &stopped, &tell))?;
        let ears = Arc::new(Ears { heard, stop });
        *shared = Arc::downgrade(&ears);
        Ok(ears)
    }
}

fn watch_file(log: &Path) -> std::io::Result<OwnedFd> {
    let descriptor = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC)?;
    inotify::add_watch(&descriptor, log, inotify::WatchFlags::OPEN)?;
    Ok(descriptor)
}

/// Tells of every call until it is stopped or the log is gone.
fn listen(descriptor: &OwnedFd, stopped: &OwnedFd, tell: &watch::Sender<()>) {
    loop {
        let mut ready = [PollFd::new(descriptor, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
        match poll(&mut ready, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return,
        }
        let [called, stop] = &ready;
        if !stop.revents().is_empty() {
            return;
        }
        let there = called.revents().is_empty() || drain(descriptor).unwrap_or(false);
        tell.send_replace(());
        if !there {
            return;
        }
        std::thread::sleep(SPACING);
    }
}

/// Reads what there is; false if the log is gone.
fn drain(descriptor: &OwnedFd) -> std::io::Result<bool> {
    let mut buffer = [MaybeUninit::uninit(); 1024];
    let mut events = inotify::Reader::new(descriptor, &mut buffer);
    let (mut any, mut there) = (false, true);
    loop {
        match events.next() {
            Ok(event) => {
                any = true;
                there &= !event.events().contains(inotify::ReadFlags::IGNORED);
            }
            Err(rustix::io::Errno::WOULDBLOCK) if any => return Ok(there),
            Err(e) => return Err(e.into()),
        }
    }
}

#[async_trait]
impl Hints for Watch {
    async fn listen(&self, _name: &LockName) -> Result<Box<dyn Hint>> {
        let ears = self.ears().map_err(|e| {
            tracing::debug!(target: "fencelock", engine = "sqlite", error = %e, "no inotify; waiters back off instead");
            Error::new(ErrorKind::Unsupported, "the log cannot be watched").with_engine("sqlite").with_source(e)
        })?;
        let mut heard = ears.heard.clone();
        heard.mark_unchanged();
        Ok(Box::new(Ear { heard, _ears: ears }))
    }
}

#[async_trait]
impl Hint for Ear {
    async fn heard(&mut self) {
        if self.heard.changed().await.is_err() {
            // Nothing will be heard any more; the safety poll remains.
            std::future::pending::<()>().await;
        }
    }
}
