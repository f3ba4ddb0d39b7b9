//! A fenced store in a file, for engines that have no gate of their own.

use fencelock_core::{Admission, FencingToken, Stale};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

/// One value in a file, guarded by fencing tokens, shared by processes of one host.
///
/// It keeps both rules of a [`Gate`](fencelock_core::Gate): a token
/// [enters](Self::enter) before the first read, and every effect carries the
/// token and is refused if a larger one has entered since. Each step is atomic
/// under an exclusive lock of the file, which blocks the thread for as long as
/// another process takes for its step.
#[derive(Clone, Debug)]
pub struct FencedFile {
    path: PathBuf,
}

/// The way to the value, for as long as no larger token has entered.
#[derive(Clone, Debug)]
pub struct FilePass {
    file: FencedFile,
    token: FencingToken,
}

impl FencedFile {
    /// The store at `path`; the file is made when first used.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Raises the highest token, or finds this one stale. The same token may enter again.
    ///
    /// # Errors
    /// What the file failed with.
    pub fn enter(&self, token: FencingToken) -> io::Result<Admission<FilePass>> {
        self.step(|state| {
            if token < state.newest {
                return Admission::Stale(Stale::new(state.newest));
            }
            state.newest = token;
            Admission::Admitted(FilePass { file: self.clone(), token })
        })
    }

    /// The value as it is now, for whoever only wants to look.
    ///
    /// # Errors
    /// What the file failed with.
    pub fn peek(&self) -> io::Result<String> {
        self.step(|state| state.value.clone())
    }

    fn step<T>(&self, change: impl FnOnce(&mut State) -> T) -> io::Result<T> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&self.path)?;
        file.lock()?;
        let mut state = State::read(&mut file)?;
        let done = change(&mut state);
        state.write(&mut file)?;
        Ok(done)
    }
}

impl FilePass {
    /// The value.
    ///
    /// # Errors
    /// What the file failed with.
    pub fn read(&self) -> io::Result<Admission<String>> {
        self.effect(|value| value.clone())
    }

    /// Replaces the value.
    ///
    /// # Errors
    /// What the file failed with.
    pub fn write(&self, new: &str) -> io::Result<Admission<()>> {
        self.effect(|value| new.clone_into(value))
    }

    fn effect<T>(&self, change: impl FnOnce(&mut String) -> T) -> io::Result<Admission<T>> {
        self.file.step(|state| {
            if state.newest == self.token {
                Admission::Admitted(change(&mut state.value))
            } else {
                Admission::Stale(Stale::new(state.newest))
            }
        })
    }
}

/// The file's content: the newest token on the first line, the value after it.
struct State {
    newest: FencingToken,
    value: String,
}

impl State {
    fn read(file: &mut File) -> io::Result<Self> {
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        if text.is_empty() {
            return Ok(Self { newest: FencingToken::new(0), value: text });
        }
        let parsed = text.split_once('\n').and_then(|(newest, value)| {
            Some(Self { newest: FencingToken::new(newest.parse().ok()?), value: value.to_owned() })
        });
        parsed.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "this is no fenced file"))
    }

    fn write(&self, file: &mut File) -> io::Result<()> {
        file.rewind()?;
        file.set_len(0)?;
        file.write_all(format!("{}\n{}", self.newest, self.value).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_rules_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let file = FencedFile::at(dir.path().join("value"));
        let (one, two) = (FencingToken::new(1), FencingToken::new(2));
        let first = file.enter(one).unwrap().admitted().unwrap();
        first.write("a\nb").unwrap().admitted().unwrap();
        assert_eq!(first.read().unwrap().admitted().unwrap(), "a\nb");
        let second = file.enter(two).unwrap().admitted().unwrap();
        assert_eq!(first.write("late").unwrap(), Admission::Stale(Stale::new(two)));
        assert!(first.read().unwrap().is_stale() && file.enter(one).unwrap().is_stale());
        second.write("c").unwrap().admitted().unwrap();
        assert_eq!(file.peek().unwrap(), "c");
        assert!(!file.enter(two).unwrap().is_stale());
    }
}
