//! Runs the test programs that cargo built, several at a time: most of what they do is waiting for a lease to end.
//!
//! `abreast PLAN [N]`: PLAN is what `cargo test --no-run --message-format json`
//! wrote; N programs run at a time (2 unless told). Each runs as cargo runs it, in the folder
//! of its package, and what it says is shown in one piece when it has ended. Ends with 1 if one failed.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "what the tests say is its report")]

use serde_json::Value;
use std::collections::VecDeque;
use std::error::Error;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

/// One program of tests.
struct Program {
    title: String,
    executable: PathBuf,
    folder: PathBuf,
}

impl Program {
    /// What cargo's message tells of; nothing, unless it is a program of tests.
    fn told(message: &Value) -> Option<Self> {
        let test = message.pointer("/profile/test")?.as_bool()?;
        let executable = PathBuf::from(message.get("executable")?.as_str()?);
        let folder = PathBuf::from(message.get("manifest_path")?.as_str()?).parent()?.to_owned();
        let source = PathBuf::from(message.pointer("/target/src_path")?.as_str()?);
        let inside = source.strip_prefix(&folder).unwrap_or(&source).display().to_string();
        let package = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        test.then_some(Self { title: format!("{package}: {inside}"), executable, folder })
    }

    /// Those that take longest are begun first, or the last one is waited for alone.
    fn is_short(&self) -> bool {
        !["contract", "processes", "faults", "mutants", "postgres", "mysql"]
            .iter()
            .any(|long| self.title.contains(long))
    }

    /// Runs it, and shows what it said; whether it succeeded.
    fn run(&self, screen: &Mutex<()>) -> io::Result<bool> {
        let started = Instant::now();
        let mut said = tempfile::tempfile()?;
        let mut program = Command::new(&self.executable);
        // Without it, a test that builds something has each package built by the toolchain that its folder names.
        if let Some(toolchain) = option_env!("RUSTUP_TOOLCHAIN") {
            program.env("RUSTUP_TOOLCHAIN", toolchain);
        }
        let status = program
            .current_dir(&self.folder)
            .env("CARGO", env!("CARGO"))
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .stdin(Stdio::null())
            .stdout(said.try_clone()?)
            .stderr(said.try_clone()?)
            .status()?;
        let mut text = Vec::new();
        said.rewind()?;
        said.read_to_end(&mut text)?;
        let _one_at_a_time = screen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = io::stdout().lock();
        writeln!(out, "     Running {} ({:.1} s)", self.title, started.elapsed().as_secs_f64())?;
        out.write_all(&text)?;
        if !status.success() {
            writeln!(out, "FAILED  {}: {status}", self.title)?;
        }
        out.flush()?;
        Ok(status.success())
    }
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let plan = arguments.next().ok_or("usage: abreast PLAN [N]")?;
    let abreast: usize = arguments.next().map_or(Ok(2), |given| given.parse())?;
    let mut programs = Vec::new();
    for line in BufReader::new(File::open(plan)?).lines() {
        programs.extend(Program::told(&serde_json::from_str(&line?)?));
    }
    programs.sort_by_key(Program::is_short);
    println!("{} programs of tests, {abreast} at a time", programs.len());
    let queue = Mutex::new(VecDeque::from(programs));
    let screen = Mutex::new(());
    let failed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..abreast.max(1) {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                    let Some(program) = next else { return };
                    let outcome = program.run(&screen);
                    if let Err(e) = &outcome {
                        eprintln!("{}: {e}", program.executable.display());
                    }
                    if !outcome.unwrap_or(false) {
                        failed.lock().unwrap_or_else(PoisonError::into_inner).push(program.title);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    for title in &failed {
        println!("failed: {title}");
    }
    Ok(ExitCode::from(u8::from(!failed.is_empty())))
}
