//! Wall clocks that can be set, one for each server, by libfaketime.

use crate::process::Failure;
use std::path::{Path, PathBuf};

const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";
/// Redis's own allocator reads the clock while it starts, and hangs; the C library's does not.
const LIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";

/// The wall clock of one server. Its monotonic clock stays true.
///
/// It does nothing to programs that do not ask the C library for the time, as those in Go.
#[derive(Clone, Debug)]
pub struct Clock(PathBuf);

impl Clock {
    /// A clock that is right, kept in a server's folder.
    pub(crate) fn in_folder(folder: &Path) -> Result<Self, Failure> {
        if !Path::new(LIBRARY).exists() {
            return Err(Failure::new(format!("{LIBRARY} (Debian package libfaketime) is missing")));
        }
        let clock = Self(folder.join("clock"));
        clock.set("+0")?;
        Ok(clock)
    }

    /// What comes before a program so that it reads this clock: arguments of `env`.
    pub(crate) fn environment(&self) -> [String; 4] {
        [
            format!("LD_PRELOAD={LIBRARY} {LIBC}"),
            format!("FAKETIME_TIMESTAMP_FILE={}", self.0.display()),
            "FAKETIME_NO_CACHE=1".to_owned(),
            "FAKETIME_DONT_FAKE_MONOTONIC=1".to_owned(),
        ]
    }

    /// Moves it to `seconds` from the true time.
    ///
    /// # Errors
    /// If its file cannot be written.
    pub fn jump(&self, seconds: i64) -> Result<(), Failure> {
        self.set(&format!("{seconds:+}"))
    }

    /// Sets it by libfaketime's own words, such as `+0 x2` for double speed from the server's start on.
    ///
    /// # Errors
    /// If its file cannot be written.
    pub fn set(&self, words: &str) -> Result<(), Failure> {
        // Renamed into place: it is read at any time, and never half.
        let new = self.0.with_extension("new");
        std::fs::write(&new, format!("{words}\n"))?;
        Ok(std::fs::rename(&new, &self.0)?)
    }
}
