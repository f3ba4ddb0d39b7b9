//! The child's side.

use super::Role;
use crate::failure::{Expect, Failure, Outcome};
use crate::{FencedFile, FilePass, Harness, HolderTerms};
use fencelock_core::{Admission, LockClient, LockGuard, LossReason};
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::time::Duration;
use tokio::sync::mpsc;

/// Plays the role that this process was given as a [`HolderProcess`](crate::HolderProcess);
/// `None` if it was given none.
///
/// [`main`](crate::main) calls it first. A test binary with a `main` of its own,
/// which starts holders in other processes, must do the same.
#[must_use]
pub fn run_if_child<H: Harness>() -> Option<ExitCode> {
    let terms = HolderTerms::from_environment()?;
    die_with_parent();
    let played = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let played = played.map_err(Failure::from).and_then(|runtime| runtime.block_on(play::<H>(&terms)));
    Some(match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            say(format_args!("! error {}", failure.to_string().replace('\n', " ")));
            ExitCode::FAILURE
        }
    })
}

fn die_with_parent() {
    #[cfg(target_os = "linux")]
    {
        let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    }
}

fn say(line: std::fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    // A parent that does not listen any more is noticed when the commands end.
    let _ = out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush());
}

async fn play<H: Harness>(terms: &HolderTerms) -> Outcome {
    let engine = H::connect(&terms.address).await.expect_that("connecting from another process")?;
    let client = LockClient::builder(engine).holder(format!("process:{}", std::process::id())).build()?;
    match terms.role {
        Role::Hold => hold(&client, terms).await,
        Role::Count(times) => count(&client, terms, times).await,
    }
}

/// Adds one to the number in the file, `times` over, in steps that only the lock makes whole.
///
/// It says when it asks for the first time, and leaves its first hold upon a command only: whoever holds first stays
/// until all ask, however slowly the others started. A file beside the number shows who else is inside.
async fn count(client: &LockClient, terms: &HolderTerms, times: u32) -> Outcome {
    let file = terms.file.as_ref().expect_that("no file to count in")?;
    let inside = file.with_extension("inside");
    let lock = client.named(&terms.name).ttl(terms.ttl).wait_at_most(Duration::from_secs(50));
    let mut commands = commands();
    say(format_args!("! asking"));
    for turn in 0..times {
        let guard = lock.acquire().await?;
        std::fs::File::create_new(&inside).expect_that("two are inside at once")?;
        let number: u64 = std::fs::read_to_string(file)?.trim().parse()?;
        if turn == 0 {
            commands.recv().await.expect_that("nobody said to go on")?;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        std::fs::write(file, (number + 1).to_string())?;
        std::fs::remove_file(&inside).expect_that("two were inside at once")?;
        guard.release().await?;
    }
    client.close().await;
    say(format_args!("! done"));
    Ok(())
}

async fn hold(client: &LockClient, terms: &HolderTerms) -> Outcome {
    let lock = client.named(&terms.name).ttl(terms.ttl).lock_delay(terms.lock_delay);
    let guard = lock.wait_at_most(Duration::from_secs(20)).acquire().await?;
    say(format_args!("! held {}", guard.token()));
    let monitor = guard.monitor();
    let mut holder = Holder { guard: Some(guard), file: terms.file.clone().map(FencedFile::at), pass: None };
    let mut commands = commands();
    let mut told = false;
    loop {
        tokio::select! {
            // A command that waited while we were stopped is obeyed first: what it asks must be right without being told.
            biased;
            command = commands.recv() => match command {
                Some(command) => say(format_args!("= {}", holder.obey(&command).await?)),
                None => return Ok(()),
            },
            reason = monitor.lost(), if !told => {
                told = true;
                say(format_args!("! lost {}", reason_word(reason)));
            }
        }
    }
}

fn reason_word(reason: LossReason) -> &'static str {
    match reason {
        LossReason::Expired => "expired",
        LossReason::Revoked => "revoked",
        LossReason::SessionEnded => "session_ended",
        LossReason::MaxHold => "max_hold",
        _ => "otherwise",
    }
}

/// Commands as they come, until the parent closes its end or is gone.
fn commands() -> mpsc::UnboundedReceiver<String> {
    let (sender, commands) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    commands
}

struct Holder {
    guard: Option<LockGuard>,
    file: Option<FencedFile>,
    pass: Option<FilePass>,
}

impl Holder {
    async fn obey(&mut self, command: &str) -> Outcome<String> {
        let (verb, value) = command.split_once(' ').unwrap_or((command, ""));
        Ok(match verb {
            "held?" => if self.guard.as_ref().is_some_and(LockGuard::is_held) { "yes" } else { "no" }.to_owned(),
            "left?" => self.guard.as_ref().map_or(0, |guard| guard.remaining().as_micros()).to_string(),
            "enter" => self.enter()?,
            "write" => match self.pass.as_ref().expect_that("a write before `enter`")?.write(value)? {
                Admission::Admitted(()) => "written".to_owned(),
                Admission::Stale(stale) => format!("stale {}", stale.newest),
            },
            "release" => match self.guard.take() {
                Some(guard) => match guard.release().await {
                    Ok(()) => "released".to_owned(),
                    Err(e) => format!("error {}", e.kind()),
                },
                None => "error nothing held".to_owned(),
            },
            _ => format!("error no command {verb}"),
        })
    }

    fn enter(&mut self) -> Outcome<String> {
        let file = self.file.as_ref().expect_that("no fenced file")?;
        let token = self.guard.as_ref().expect_that("nothing held")?.token();
        Ok(match file.enter(token)? {
            Admission::Admitted(pass) => {
                self.pass = Some(pass);
                "entered".to_owned()
            }
            Admission::Stale(stale) => format!("stale {}", stale.newest),
        })
    }
}
