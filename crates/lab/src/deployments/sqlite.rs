//! SQLite: a file, and processes of one host.

use super::about_its_ttl;
use crate::experiment::{Deployment, Experiment, fenced, paused, paused_write_only};
use crate::fault::Fault;
use fencelock_lab::Failure;
use tempfile::TempDir;

struct File {
    folder: TempDir,
}

impl Deployment for File {
    fn url(&mut self, _worker: u32) -> Result<String, Failure> {
        Ok(format!("sqlite:{}", self.folder.path().join("locks.db").display()))
    }

    fn hurt(&mut self, fault: Fault, _worker: u32) -> Result<(), Failure> {
        Err(Failure::new(format!("a file does not suffer {fault}")))
    }

    fn mend(&mut self, _fault: Fault, _worker: u32) -> Result<(), Failure> {
        Ok(())
    }
}

fn start() -> Result<Box<dyn Deployment>, Failure> {
    let folder = tempfile::Builder::new().prefix("fencelock-lab-").tempdir()?;
    Ok(Box::new(File { folder }))
}

pub(super) fn experiments() -> Vec<Experiment> {
    let bare = |fault| Experiment::new("sqlite", "file", fault, start);
    let of = |fault| bare(fault).holds(fenced());
    vec![
        of(Fault::HolderKilled),
        of(Fault::HolderStoppedShort),
        about_its_ttl(of(Fault::HolderStoppedLong)),
        paused(of(Fault::HolderStoppedLong)).quick(),
        paused_write_only(bare(Fault::HolderStoppedLong)).quick(),
    ]
}
