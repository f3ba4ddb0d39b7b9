//! The parent's side: a process that can be killed, stopped and continued.

use crate::HolderTerms;
use crate::failure::{Expect, Failure, Outcome, ensure};
use fencelock_core::FencingToken;
use rustix::process::{Pid, Signal};
use std::collections::VecDeque;
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;
use tokio::sync::mpsc;

/// The longest that the process may take to say something.
const LIMIT: Duration = Duration::from_secs(30);

/// A lock's holder in another process: this binary, run again.
///
/// The binary's `main` must be [`fencelock_testkit::main`](crate::main), or begin
/// with [`run_if_child`](crate::run_if_child). The process says what happens to it, and obeys one command a line:
///
/// | command | answer |
/// |---|---|
/// | `held?` | `yes` or `no`, from `is_held()` |
/// | `left?` | the remaining time in microseconds |
/// | `enter` | enters the fenced file: `entered` or `stale TOKEN` |
/// | `write VALUE` | writes to it, asking no clock first: `written` or `stale TOKEN` |
/// | `release` | `released`, or `error KIND` |
///
/// The suite's own counting processes say `asking` when they first ask for the lock, stay in their first hold until any
/// line comes, which nothing answers, and say `done`.
///
/// # Drop
/// Kills the process, stopped or not, and waits for its end. On Linux the kernel
/// kills it too when the thread that started it ends, so start it on a thread
/// that lives on (a runtime's worker does).
pub struct HolderProcess {
    child: Child,
    commands: Option<ChildStdin>,
    lines: mpsc::UnboundedReceiver<String>,
    events: VecDeque<String>,
}

impl HolderProcess {
    /// Starts the process; [`held`](Self::held) waits for its lock.
    ///
    /// # Errors
    /// What kept the process from starting.
    pub fn start(terms: &HolderTerms) -> Result<Self, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .envs(terms.to_environment())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect_that("starting a process")?;
        let (commands, output) = (child.stdin.take(), child.stdout.take());
        let (said, lines) = mpsc::unbounded_channel();
        let process = Self { child, commands, lines, events: VecDeque::new() };
        let output = output.expect_that("the process has no output")?;
        std::thread::Builder::new().name("holder process".to_owned()).spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if said.send(line).is_err() {
                    break;
                }
            }
        })?;
        Ok(process)
    }

    /// The process's id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the process says that it holds the lock, and with which token.
    ///
    /// # Errors
    /// What the process says instead, or that it says nothing.
    pub async fn held(&mut self) -> Result<FencingToken, Failure> {
        let event = self.event().await?;
        let token = event.strip_prefix("held ").and_then(|token| token.parse().ok());
        token.map(FencingToken::new).expect_that(format_args!("the holder should hold, and says: {event}"))
    }

    /// The next thing that happened to the process: `held TOKEN`, `lost REASON`, `asking`, `done`, `error …`.
    ///
    /// # Errors
    /// That it says nothing for 30 s, or has ended.
    pub async fn event(&mut self) -> Result<String, Failure> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            let line = self.line().await?;
            if let Some(event) = line.strip_prefix("! ") {
                self.events.push_back(event.to_owned());
            }
        }
    }

    /// Gives a command, and waits for the answer.
    ///
    /// # Errors
    /// That it says nothing for 30 s, or has ended.
    pub async fn ask(&mut self, command: &str) -> Result<String, Failure> {
        self.tell(command)?;
        self.answer().await
    }

    /// Gives a command without waiting: a stopped process obeys when it is continued.
    ///
    /// # Errors
    /// That the process has ended.
    pub fn tell(&mut self, command: &str) -> Result<(), Failure> {
        let commands = self.commands.as_mut().expect_that("the process takes no commands")?;
        commands.write_all(format!("{command}\n").as_bytes())?;
        Ok(commands.flush()?)
    }

    /// The answer to the oldest command that is not answered yet.
    ///
    /// # Errors
    /// That it says nothing for 30 s, or has ended.
    pub async fn answer(&mut self) -> Result<String, Failure> {
        loop {
            let line = self.line().await?;
            if let Some(answer) = line.strip_prefix("= ") {
                return Ok(answer.to_owned());
            }
            if let Some(event) = line.strip_prefix("! ") {
                self.events.push_back(event.to_owned());
            }
        }
    }

    async fn line(&mut self) -> Outcome<String> {
        let line = tokio::time::timeout(LIMIT, self.lines.recv()).await;
        line.map_err(|_| Failure::new(format!("the other process said nothing for {LIMIT:?}")))?
            .expect_that("the other process has ended")
    }

    /// The longest that the holder may believe its lease from now on, if it renews no more.
    pub(crate) async fn left(&mut self) -> Outcome<Duration> {
        let answer = self.ask("left?").await?;
        Ok(Duration::from_micros(answer.parse().expect_that(format_args!("`left?` was answered with {answer}"))?))
    }

    /// Ends it without a warning (SIGKILL), and waits for the end.
    ///
    /// # Errors
    /// What the system says.
    pub fn kill(&mut self) -> Result<(), Failure> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Stops it where it is (SIGSTOP).
    ///
    /// # Errors
    /// What the system says; or that the process has ended.
    pub fn stop(&mut self) -> Result<(), Failure> {
        self.signal(Signal::STOP)
    }

    /// Lets it go on after [`stop`](Self::stop) (SIGCONT).
    ///
    /// # Errors
    /// What the system says; or that the process has ended.
    pub fn cont(&mut self) -> Result<(), Failure> {
        self.signal(Signal::CONT)
    }

    fn signal(&mut self, signal: Signal) -> Outcome {
        // Not waited for yet, so the id is still this process's.
        ensure!(self.child.try_wait()?.is_none(), "the other process has ended");
        rustix::process::kill_process(Pid::from_child(&self.child), signal)?;
        Ok(())
    }
}

impl Drop for HolderProcess {
    fn drop(&mut self) {
        // SIGKILL ends a stopped process too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl fmt::Debug for HolderProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HolderProcess").field("id", &self.child.id()).field("events", &self.events).finish()
    }
}
