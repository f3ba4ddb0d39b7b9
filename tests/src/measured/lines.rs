//! Lines of JSON, and the first of each file: how it came about.

use super::Result;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How a run came about.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) date: String,
    pub(super) command: String,
    pub(super) processors: usize,
    pub(super) system: String,
    /// What else the machine did, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) note: String,
    /// Of these alone, whose lines it has replaced; none if it was of all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) engines: Vec<String>,
}

impl Run {
    /// On this machine, which is taken to be the one that ran it.
    pub(super) fn here(date: &str, command: String, note: &str) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let system = format!("{} {}", std::env::consts::OS, std::env::consts::ARCH);
        Self { date: date.to_owned(), command, processors, system, note: note.to_owned(), engines: Vec::new() }
    }

    /// `2026-11-30, on 2 processors, with nothing else to do`.
    pub(super) fn told(&self) -> String {
        let note = if self.note.is_empty() { String::new() } else { format!(", {}", self.note) };
        format!("{}, on {} processors{note}", self.date, self.processors)
    }
}

/// Whether a line has no `kind`: in what the programs write, those are the verdicts and the rows.
pub(super) fn is_plain(line: &Value) -> bool {
    line.get("kind").is_none()
}

pub(super) fn values(text: &str) -> Result<Vec<Value>> {
    parsed(text)
}

/// Each line as what it is.
pub(super) fn parsed<T: DeserializeOwned>(text: &str) -> Result<Vec<T>> {
    let line = |(at, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|e| format!("line {}: {e}: {line}", at + 1).into())
    };
    text.lines().enumerate().map(line).collect()
}

pub(super) fn written<T: Serialize>(lines: &[T]) -> Result<String> {
    let mut text = String::new();
    for line in lines {
        text.push_str(&serde_json::to_string(line)?);
        text.push('\n');
    }
    Ok(text)
}
