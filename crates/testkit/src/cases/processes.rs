//! Holders in other processes: killed, stopped, continued.

use crate::failure::{Expect, Outcome, ensure};
use crate::stage::{SLACK, Stage, is_free, is_taken, take, within};
use crate::{FencedFile, HolderProcess};
use fencelock_core::ErrorKind;
use std::time::{Duration, Instant};

/// What take-over after a crash may cost beyond the lease.
const TAKE_OVER: Duration = Duration::from_secs(1);

pub(crate) async fn excludes_across_processes(stage: Stage) -> Outcome {
    if !stage.reaches_processes().await? {
        return Ok(());
    }
    let name = stage.name("lock");
    let client = stage.client().await?;
    let (mut process, token) = stage.holding(&stage.holder(&name)).await?;
    is_taken(&client, &name).await?;
    tokio::time::sleep(stage.ttl() * 2).await;
    let held = process.ask("held?").await?;
    ensure!(held == "yes", "the other process does not hold after two ttls: {held}");
    is_taken(&client, &name).await?;
    let released = process.ask("release").await?;
    ensure!(released == "released", "the other process's release came to {released}");
    let guard = take(&client, &name).await?;
    ensure!(guard.token() > token, "token {} came after {token}", guard.token());
    Ok(guard.release().await?)
}

pub(crate) async fn counter_across_processes(stage: Stage) -> Outcome {
    if !stage.reaches_processes().await? {
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("number");
    std::fs::write(&file, "0")?;
    let mut terms = stage.holder(&stage.name("counter")).with_file(&file).counting(15);
    terms.ttl = stage.long_ttl();
    let mut processes = Vec::new();
    for _ in 0..4 {
        processes.push(HolderProcess::start(&terms)?);
    }
    for process in &mut processes {
        let event = process.event().await?;
        ensure!(event == "asking", "a process that is to count says {event}");
    }
    // Whoever was first stays inside; time for the others' requests, in pieces, since a machine may stand still.
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for process in &mut processes {
        // One that has ended says why.
        let _ = process.tell("on");
    }
    for process in &mut processes {
        let event = process.event().await?;
        ensure!(event == "done", "a counting process says {event}");
    }
    let counted = std::fs::read_to_string(&file)?;
    ensure!(counted.trim() == "60", "60 increments in 4 processes came to {counted}");
    Ok(())
}

pub(crate) async fn killed_holder_frees_within_its_ttl(stage: Stage) -> Outcome {
    killed(&stage, Duration::ZERO).await
}

pub(crate) async fn killed_holder_frees_after_its_lock_delay(stage: Stage) -> Outcome {
    let delay = stage.ttl();
    let client = stage.client().await?;
    let refused = client.named(&stage.name("probe")).lock_delay(delay).try_acquire().await;
    if let (Err(e), true) = (&refused, stage.is_session())
        && e.kind() == ErrorKind::InvalidConfig
    {
        stage.chose("holds live in a session", "a lock delay that it cannot hold may be refused, and is");
        return Ok(());
    }
    refused?.expect_that("a new name should be free")?.release().await?;
    killed(&stage, delay).await
}

async fn killed(stage: &Stage, delay: Duration) -> Outcome {
    if !stage.reaches_processes().await? {
        return Ok(());
    }
    let name = stage.name("lock");
    let client = stage.client().await?;
    let (mut process, token) = stage.holding(&stage.holder(&name).with_lock_delay(delay)).await?;
    // It lives on renewals by then.
    tokio::time::sleep(stage.ttl() * 3 / 2).await;
    is_taken(&client, &name).await?;
    let asked = Instant::now();
    let left = process.left().await?;
    process.kill()?;
    let killed = Instant::now();
    let most = stage.ttl().max(left) + delay + TAKE_OVER + SLACK;
    let guard = within("the lock of a killed process is free", most, client.acquire(&name)).await??;
    let (taken, deadline) = (Instant::now(), asked + left);
    ensure!(guard.token() > token, "token {} came after {token}", guard.token());
    if stage.is_session() {
        stage.chose("holds live in a session", "a killed holder's may end at once");
    } else {
        let early = (deadline + delay).saturating_duration_since(taken);
        ensure!(early.is_zero(), "granted {early:?} before the killed holder's deadline and lock delay");
        stage.chose("holds live on leases", "a killed holder's lasts to its deadline and lock delay");
    }
    stage.chose(format_args!("take-over took {:?} after the kill", taken - killed), "it is within bounds");
    Ok(guard.release().await?)
}

pub(crate) async fn stopped_holder_finds_it_lost(stage: Stage) -> Outcome {
    if !stage.reaches_processes().await? {
        return Ok(());
    }
    let name = stage.name("lock");
    let client = stage.client().await?;
    let dir = tempfile::tempdir()?;
    let file = FencedFile::at(dir.path().join("value"));
    let (mut process, token) = stage.holding(&stage.holder(&name).with_file(file.path())).await?;
    for (command, expected) in [("enter", "entered"), ("write first", "written"), ("held?", "yes")] {
        let answer = process.ask(command).await?;
        ensure!(answer == expected, "`{command}` was answered with {answer}");
    }
    let asked = Instant::now();
    let left = process.left().await?;
    process.stop()?;
    let most = stage.ttl().max(left) + TAKE_OVER + SLACK;
    let guard = within("the lock of a stopped process is free", most, client.acquire(&name)).await??;
    let early = (asked + left).saturating_duration_since(Instant::now());
    ensure!(early.is_zero(), "granted {early:?} before the stopped holder's deadline");
    ensure!(guard.token() > token, "token {} came after {token}", guard.token());
    let pass = file.enter(guard.token())?.admitted()?;
    pass.write("second")?.admitted()?;

    // The questions wait for it, so that they are the first thing it meets.
    process.tell("held?")?;
    process.tell("write late")?;
    process.cont()?;
    let held = process.answer().await?;
    ensure!(held == "no", "stopped past its ttl, the holder's first look at its lock says {held}");
    let wrote = process.answer().await?;
    ensure!(wrote == format!("stale {}", guard.token()), "the stale write was answered with {wrote}");
    let found = file.peek()?;
    ensure!(found == "second", "after the stale write the value is {found:?}");
    let event = process.event().await?;
    ensure!(event.starts_with("lost "), "the stopped holder is told {event}");
    let released = process.ask("release").await?;
    ensure!(released == format!("error {}", ErrorKind::Lost), "the stopped holder's release came to {released}");
    ensure!(guard.is_held(), "the next holder lost the lock to the one that was stopped");
    is_taken(&client, &name).await?;
    guard.release().await?;
    is_free(&client, &name).await
}
