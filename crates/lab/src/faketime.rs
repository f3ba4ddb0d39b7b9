//! Wall clocks that can be set, one for each server, by libfaketime.

use crate::process::Failure;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";
/// Redis's own allocator reads the clock while it starts, and hangs; the C library's does not.
const LIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";

/// The wall clock of one server. Its monotonic clock stays true.
///
/// It does nothing to programs that do not ask the C library for the time, as those in Go.
#[derive(Debug)]
pub struct Clock {
    file: PathBuf,
    /// From when libfaketime counts, within some milliseconds: the server is started next.
    made: Instant,
    set: Mutex<Setting>,
}

/// What the clock has gained since it was made, after `t` seconds: `t * (speed - 1) + offset`.
#[derive(Clone, Copy, Debug)]
struct Setting {
    offset: f64,
    speed: f64,
}

impl Clock {
    /// A clock that is right, kept in a server's folder.
    pub(crate) fn in_folder(folder: &Path) -> Result<Self, Failure> {
        if !Path::new(LIBRARY).exists() {
            return Err(Failure::new(format!("{LIBRARY} (Debian package libfaketime) is missing")));
        }
        let set = Mutex::new(Setting { offset: 0.0, speed: 1.0 });
        let clock = Self { file: folder.join("clock"), made: Instant::now(), set };
        clock.change(|_, _| {})?;
        Ok(clock)
    }

    /// What comes before a program so that it reads this clock: arguments of `env`.
    pub(crate) fn environment(&self) -> [String; 4] {
        [
            format!("LD_PRELOAD={LIBRARY} {LIBC}"),
            format!("FAKETIME_TIMESTAMP_FILE={}", self.file.display()),
            "FAKETIME_NO_CACHE=1".to_owned(),
            "FAKETIME_DONT_FAKE_MONOTONIC=1".to_owned(),
        ]
    }

    /// Steps it by `seconds`, forward or back.
    ///
    /// # Errors
    /// If its file cannot be written.
    pub fn step(&self, seconds: i32) -> Result<(), Failure> {
        self.change(|_, set| set.offset += f64::from(seconds))
    }

    /// Lets it run `speed` times as fast as it should from now on, without a step.
    ///
    /// # Errors
    /// If its file cannot be written.
    pub fn run_at(&self, speed: u32) -> Result<(), Failure> {
        self.change(|passed, set| {
            let speed = f64::from(speed);
            (set.offset, set.speed) = (set.offset + passed * (set.speed - speed), speed);
        })
    }

    fn change(&self, how: impl FnOnce(f64, &mut Setting)) -> Result<(), Failure> {
        let mut set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        how(self.made.elapsed().as_secs_f64(), &mut set);
        // Renamed into place: it is read at any time, and never half.
        let new = self.file.with_extension("new");
        let words = if set.speed > 1.0 { format!(" x{}", set.speed) } else { String::new() };
        std::fs::write(&new, format!("{:+.3}{words}\n", set.offset))?;
        Ok(std::fs::rename(&new, &self.file)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_speed_is_no_step() {
        let folder = tempfile::tempdir().unwrap();
        let mut clock = Clock::in_folder(folder.path()).unwrap();
        let written = || std::fs::read_to_string(folder.path().join("clock")).unwrap();
        assert_eq!(written(), "+0.000\n");
        clock.made -= std::time::Duration::from_secs(100);
        clock.run_at(4).unwrap();
        let words = written();
        let (offset, speed) = words.trim().split_once(' ').unwrap();
        let offset: f64 = offset.parse().unwrap();
        // After 100 s at four times the speed it would be 300 s ahead at once.
        assert!((-310.0..=-300.0).contains(&offset), "{offset}");
        assert_eq!(speed, "x4");
        clock.step(60).unwrap();
        assert!(written().starts_with("-24"), "{}", written());
    }
}
