//! What is told to a seller: a process, or a thread where the engine is in memory.

use crate::seller::seller;
use crate::{Outcome, Place};
use fencelock::LockClient;
use fencelock::memory::{MemoryLock, MemoryServer};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, Command};

pub(crate) struct Worker {
    /// None of a thread.
    pub(crate) process: Option<Child>,
    commands: Box<dyn AsyncWrite + Send + Unpin>,
    answers: Lines<BufReader<Box<dyn AsyncRead + Send + Unpin>>>,
}

impl Worker {
    pub(crate) fn start(place: &Place, url: &str, folder: &Path) -> Outcome<Self> {
        if let Some(server) = &place.memory {
            return Ok(Self::thread(server.clone(), folder.to_owned()));
        }
        let mut process = Command::new(std::env::current_exe()?)
            .args(["worker", url])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let (Some(commands), Some(answers)) = (process.stdin.take(), process.stdout.take()) else {
            return Err("a worker has no pipes".into());
        };
        Ok(Self::of(Some(process), commands, answers))
    }

    fn of(
        process: Option<Child>,
        to: impl AsyncWrite + Send + Unpin + 'static,
        from: impl AsyncRead + Send + Unpin + 'static,
    ) -> Self {
        let from: Box<dyn AsyncRead + Send + Unpin> = Box::new(from);
        Self { process, commands: Box::new(to), answers: BufReader::new(from).lines() }
    }

    /// A runtime of its own, which stands still while its thread is blocked.
    fn thread(server: MemoryServer, folder: PathBuf) -> Self {
        let ((to, commands), (answers, from)) = (tokio::io::duplex(4096), tokio::io::duplex(4096));
        std::thread::spawn(move || -> Outcome {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                seller(LockClient::new(Arc::new(MemoryLock::on(&server)))?, &folder, commands, answers).await
            })
        });
        Self::of(None, to, from)
    }

    pub(crate) async fn tell(&mut self, command: &str) -> Outcome {
        self.commands.write_all(format!("{command}\n").as_bytes()).await?;
        Ok(self.commands.flush().await?)
    }

    pub(crate) async fn answer(&mut self) -> Outcome<String> {
        let answer = tokio::time::timeout(Duration::from_secs(40), self.answers.next_line()).await??;
        answer.ok_or_else(|| "a worker has ended; what it said is above".into())
    }

    pub(crate) async fn ask(&mut self, command: &str) -> Outcome<String> {
        self.tell(command).await?;
        self.answer().await
    }

    /// When the lock was granted; `None` if it was not.
    pub(crate) async fn granted(&mut self) -> Outcome<Option<u64>> {
        let answer = self.answer().await?;
        Ok(answer.split_once(' ').map(|(_, at)| at.parse()).transpose()?)
    }

    /// When it last believed in its hold, and what it says now.
    pub(crate) async fn believed(&mut self) -> Outcome<(u64, String)> {
        let answer = self.ask("held?").await?;
        let (until, says) = answer.split_once(' ').ok_or_else(|| answer.clone())?;
        Ok((until.parse()?, says.to_owned()))
    }

    pub(crate) async fn pause(&mut self, signal: Signal) -> Outcome {
        match (&self.process, signal) {
            (Some(process), _) => {
                let id = process.id().and_then(|id| Pid::from_raw(id.cast_signed())).ok_or("the worker has ended")?;
                kill_process(id, signal)?;
            }
            (None, Signal::STOP) => self.tell("sleep").await?,
            (None, _) => drop(self.answer().await?),
        }
        Ok(())
    }
}
