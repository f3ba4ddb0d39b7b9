//! Processes by id and start, so that no other that got the same id later is taken for one.

use rustix::process::{Pid, Signal, kill_process};
use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Process {
    id: u32,
    /// In the kernel's ticks since it booted.
    start: u64,
}

/// What `/proc/<id>/stat` says: the parent, the start, and whether it is only not waited for yet.
struct Stat {
    parent: u32,
    start: u64,
    dead: bool,
}

fn stat(id: u32) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name before it may have blanks and parentheses.
    let fields: Vec<_> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let (state, parent, start) = (fields.first()?, fields.get(1)?, fields.get(19)?);
    Some(Stat { parent: parent.parse().ok()?, start: start.parse().ok()?, dead: matches!(*state, "Z" | "X") })
}

impl Process {
    pub(super) fn with_id(id: u32) -> Option<Self> {
        stat(id).map(|stat| Self { id, start: stat.start })
    }

    pub(super) fn of_line(line: &str) -> Option<Self> {
        let (id, start) = line.trim().split_once(' ')?;
        Some(Self { id: id.parse().ok()?, start: start.parse().ok()? })
    }

    pub(super) fn line(self) -> String {
        format!("{} {}\n", self.id, self.start)
    }

    pub(super) const fn id(self) -> u32 {
        self.id
    }

    pub(super) fn is_alive(self) -> bool {
        stat(self.id).is_some_and(|stat| stat.start == self.start && !stat.dead)
    }
}

/// All that `id` started, and what those started.
pub(super) fn descendants(id: u32) -> Vec<Process> {
    let mut children: HashMap<u32, Vec<Process>> = HashMap::new();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for id in entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
        if let Some(stat) = stat(id) {
            children.entry(stat.parent).or_default().push(Process { id, start: stat.start });
        }
    }
    let (mut found, mut left) = (Vec::new(), vec![id]);
    while let Some(parent) = left.pop() {
        let of_it = children.remove(&parent).unwrap_or_default();
        left.extend(of_it.iter().map(|child| child.id));
        found.extend(of_it);
    }
    found
}

/// Writes down everything that this process starts, until `ended`.
pub(super) fn note(file: PathBuf, ended: Arc<AtomicBool>) {
    // Made once: whoever removes the folder finds nothing new in it.
    let _ = std::fs::write(&file, "");
    std::thread::spawn(move || {
        let mut noted = HashSet::new();
        while !ended.load(Ordering::Relaxed) {
            let new: Vec<_> = descendants(std::process::id()).into_iter().filter(|one| noted.insert(*one)).collect();
            if let Ok(mut file) = std::fs::OpenOptions::new().append(true).open(&file) {
                let _ = file.write_all(new.into_iter().map(Process::line).collect::<String>().as_bytes());
            }
            std::thread::sleep(Duration::from_millis(300));
        }
    });
}

/// Ends those that are still the ones that were noted, and waits for their end.
pub(super) fn end(processes: impl Iterator<Item = Process>) {
    let me = std::process::id();
    let alive: Vec<_> = processes.filter(|process| process.id != me && process.is_alive()).collect();
    for process in &alive {
        if let Some(pid) = Pid::from_raw(process.id.cast_signed()) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    let end = Instant::now() + Duration::from_secs(5);
    while alive.iter().any(|process| process.is_alive()) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_by_its_start_too() {
        let me = Process::with_id(std::process::id()).unwrap();
        assert!(me.is_alive());
        assert_eq!(Process::of_line(&me.line()), Some(me));
        assert!(!Process { start: me.start + 1, ..me }.is_alive(), "another with the same id");
    }

    #[test]
    fn what_was_started_is_found_and_ended() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let started = Process::with_id(child.id()).unwrap();
        assert!(descendants(std::process::id()).contains(&started));
        let other = Process { start: started.start + 1, ..started };
        end([other].into_iter());
        assert!(started.is_alive(), "it is not the one that was noted");
        end([started].into_iter());
        assert!(!started.is_alive());
        child.wait().unwrap();
    }
}
