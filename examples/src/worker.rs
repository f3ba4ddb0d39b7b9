//! Somebody who obeys one command a line, and answers each with a line: a process, or a thread with a runtime of its own.

use crate::Outcome;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::fmt;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, DuplexStream, Lines};
use tokio::process::{Child, Command};

/// The longest that an answer may take.
const PATIENCE: Duration = Duration::from_secs(40);

/// The near end of a worker.
pub struct Worker {
    /// None of a thread.
    process: Option<Child>,
    commands: Box<dyn AsyncWrite + Send + Unpin>,
    answers: Lines<BufReader<Box<dyn AsyncRead + Send + Unpin>>>,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("process", &self.process).finish_non_exhaustive()
    }
}

impl Worker {
    /// This program once more, with these arguments; it ends when this is dropped.
    ///
    /// # Errors
    /// What the system says.
    pub fn process(arguments: &[&OsStr]) -> Outcome<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let (Some(commands), Some(answers)) = (process.stdin.take(), process.stdout.take()) else {
            return Err("a worker has no pipes".into());
        };
        Ok(Self::of(Some(process), commands, answers))
    }

    /// A thread that does `work` with its commands and answers; it stands still while it is blocked.
    pub fn thread<W>(work: impl FnOnce(DuplexStream, DuplexStream) -> W + Send + 'static) -> Self
    where
        W: Future<Output = Outcome>,
    {
        let ((to, commands), (answers, from)) = (tokio::io::duplex(4096), tokio::io::duplex(4096));
        std::thread::spawn(move || -> Outcome {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async { work(commands, answers).await })
        });
        Self::of(None, to, from)
    }

    fn of(
        process: Option<Child>,
        to: impl AsyncWrite + Send + Unpin + 'static,
        from: impl AsyncRead + Send + Unpin + 'static,
    ) -> Self {
        let from: Box<dyn AsyncRead + Send + Unpin> = Box::new(from);
        Self { process, commands: Box::new(to), answers: BufReader::new(from).lines() }
    }

    /// Gives a command, and does not wait for the answer.
    ///
    /// # Errors
    /// The worker has ended.
    pub async fn tell(&mut self, command: &str) -> Outcome {
        self.commands.write_all(format!("{command}\n").as_bytes()).await?;
        Ok(self.commands.flush().await?)
    }

    /// The answer to the oldest command that has none yet.
    ///
    /// # Errors
    /// The worker has ended, or does not answer within 40 s.
    pub async fn answer(&mut self) -> Outcome<String> {
        let answer = tokio::time::timeout(PATIENCE, self.answers.next_line()).await??;
        answer.ok_or_else(|| "a worker has ended; what it said is above".into())
    }

    /// A command and its answer.
    ///
    /// # Errors
    /// As of [`answer`](Self::answer).
    pub async fn ask(&mut self, command: &str) -> Outcome<String> {
        self.tell(command).await?;
        self.answer().await
    }

    /// Makes it stand still, all of it. A thread is told to `sleep`, and is to block then.
    ///
    /// # Errors
    /// The worker has ended.
    pub async fn pause(&mut self) -> Outcome {
        match &self.process {
            Some(process) => signal(process, Signal::STOP),
            None => self.tell("sleep").await,
        }
    }

    /// Lets it go on; a thread does so by itself.
    ///
    /// # Errors
    /// The worker has ended.
    pub async fn go_on(&mut self) -> Outcome {
        match &self.process {
            Some(process) => signal(process, Signal::CONT),
            None => self.answer().await.map(drop),
        }
    }

    /// Ends a process, by SIGKILL, and waits until it is gone; a thread lives on.
    ///
    /// # Errors
    /// What the system says.
    pub async fn kill(&mut self) -> Outcome {
        match &mut self.process {
            Some(process) => Ok(process.kill().await?),
            None => Ok(()),
        }
    }
}

fn signal(process: &Child, signal: Signal) -> Outcome {
    let id = process.id().and_then(|id| Pid::from_raw(id.cast_signed())).ok_or("the worker has ended")?;
    Ok(kill_process(id, signal)?)
}
