//! Writing a history so that it survives its writer, and reading it back.

use super::{Event, What};
use fencelock_core::Clock;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Mutex;

/// Writes one worker's events to a file, a line of JSON each.
///
/// Each event is one write of a whole line, made before [`record`](Self::record)
/// returns and buffered by nobody but the system: what was recorded is in the
/// file, whatever signal ends the process next. (It is not synced to the disk:
/// the host must survive.)
#[derive(Debug)]
pub struct Recorder {
    file: Mutex<File>,
    clock: Clock,
    worker: u32,
}

impl Recorder {
    /// Appends to the file at `path` what `worker` does.
    ///
    /// # Errors
    /// What opening the file failed with.
    pub fn create(path: &Path, worker: u32) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { file: Mutex::new(file), clock: Clock::system(), worker })
    }

    /// The clock that every event is dated by, in nanoseconds.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.clock.now().as_nanos()
    }

    /// Writes what happened just now, and tells when that was.
    ///
    /// # Errors
    /// What writing failed with.
    pub fn record(&self, hold: u32, what: What) -> io::Result<u64> {
        let at = self.now();
        self.record_at(at, hold, what)?;
        Ok(at)
    }

    /// Writes what happened at `at`.
    ///
    /// # Errors
    /// What writing failed with.
    pub fn record_at(&self, at: u64, hold: u32, what: What) -> io::Result<()> {
        let event = Event { at, worker: self.worker, hold, what };
        let mut line = serde_json::to_vec(&event)?;
        line.push(b'\n');
        // A poisoned lock means that another thread panicked between two whole lines.
        self.file.lock().unwrap_or_else(std::sync::PoisonError::into_inner).write_all(&line)
    }
}

/// All events of the files, by time. A last line that was cut off, as only a host's
/// crash or a full disk can do, is left out.
///
/// # Errors
/// What reading failed with; `InvalidData` names the file and the line that is no event.
pub fn read<P: AsRef<Path>>(files: impl IntoIterator<Item = P>) -> io::Result<Vec<Event>> {
    let mut events = Vec::new();
    for file in files {
        let file = file.as_ref();
        let text = std::fs::read_to_string(file)?;
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        for (at, line) in whole.lines().enumerate() {
            events.push(serde_json::from_str::<Event>(line).map_err(|e| {
                io::Error::new(io::ErrorKind::InvalidData, format!("{}:{}: {e}", file.display(), at + 1))
            })?);
        }
    }
    events.sort_by_key(|event| event.at);
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{GateAnswer, ReleaseAnswer};

    #[test]
    fn what_is_written_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("w.jsonl");
        let recorder = Recorder::create(&path, 7).unwrap();
        let lock = "a \"b\"\nc".into();
        let whats = [
            What::Acquire { lock },
            What::Granted { token: u64::MAX },
            What::Believed { asked: 1, deadline: 2 },
            What::Lost { reason: "revoked".into() },
            What::Wrote { resource: "r".into(), value: 3, answer: GateAnswer::Stale },
            What::Released { answer: ReleaseAnswer::Unknown },
            What::FinalList { resource: "l".into(), elements: vec![1, 2] },
        ];
        for what in &whats {
            recorder.record(5, what.clone()).unwrap();
        }
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"at\":1,").unwrap();
        let events = read([&path]).unwrap();
        assert_eq!(events.iter().map(|e| e.what.clone()).collect::<Vec<_>>(), whats);
        assert!(events.iter().all(|e| (e.worker, e.hold) == (7, 5)));
        assert!(events.is_sorted_by_key(|e| e.at));
    }
}
