//! Completion scripts and manual pages, made from the command line's definition.

use crate::args::Cli;
use crate::exit::{self, Failure, Outcome};
use crate::output::answer;
use clap::CommandFactory;
use std::path::Path;
use std::{fs, io};

/// Prints the completion script for `shell`.
pub(crate) fn completions(shell: clap_complete::Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "fencelock", &mut script);
    answer(&String::from_utf8_lossy(&script))?;
    Ok(exit::OK)
}

/// Writes `fencelock.1` and a page for each command into `directory`.
pub(crate) fn manual(directory: &Path) -> Outcome {
    let written = clap_mangen::generate_to(Cli::command(), directory)
        .and_then(|()| with_dashes(&directory.join("fencelock-run.1")));
    written.map_err(|e| Failure::new(exit::SYSTEM, format!("{}: {e}", directory.display())))?;
    Ok(exit::OK)
}

/// Adds what the generator leaves out of the synopsis: the dashes before the command.
fn with_dashes(page: &Path) -> io::Result<()> {
    let text = fs::read_to_string(page)?;
    fs::write(page, text.replacen(r"<\fICOMMAND\fR>", r"\-\- <\fICOMMAND\fR>...", 1))
}
