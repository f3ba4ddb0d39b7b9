//! Losing a lock: told, final, and harmless to whoever has it next.

use super::lease::passes_on;
use crate::FencedFile;
use crate::failure::{Expect, Outcome, ensure};
use crate::stage::{SLACK, Stage, contended, granted, is_free, is_taken, take, within};
use fencelock_core::{Admission, Capability, Ended, ErrorKind, Level, LockClient, LockGuard, LossReason};
use std::time::{Duration, Instant};

/// How often a holder may be told that its hold expired, where it was taken away: whom the machine keeps from renewing
/// until the deadline knows no better.
const ATTEMPTS: u32 = 3;

/// Whether the holder was told what happened, or has to be tried again.
pub(super) fn told_why(reason: LossReason, attempt: u32) -> Outcome<bool> {
    let late = reason == LossReason::Expired && attempt < ATTEMPTS;
    let told = reason == LossReason::Revoked;
    ensure!(told || late, "the service took the lock away, and the holder is told {reason:?}");
    Ok(told)
}

/// A hold that was taken away, and whose holder was told so.
async fn told_of_seizure(stage: &Stage, client: &LockClient) -> Outcome<(String, LockGuard)> {
    let mut attempt = 1;
    loop {
        let name = stage.name(&format!("lock {attempt}"));
        let guard = take(client, &name).await?;
        stage.seize(&name).await?;
        let reason = within("the loss is told", stage.ttl() + SLACK, guard.lost()).await?;
        if told_why(reason, attempt)? {
            return Ok((name, guard));
        }
        attempt += 1;
    }
}

pub(crate) async fn seized_is_told_and_stays_lost(stage: Stage) -> Outcome {
    let (a, b) = (stage.client().await?, stage.client().await?);
    let (name, guard) = told_of_seizure(&stage, &a).await?;
    ensure!(!guard.is_held() && !guard.in_jeopardy(), "lost, and held");
    ensure!(guard.remaining().is_zero(), "lost, and valid for {:?}", guard.remaining());
    let holder = b.inspect(&name).await?;
    ensure!(holder.is_none(), "the seized lock is held again: {holder:?}");
    for _ in 0..20 {
        ensure!(!guard.is_held(), "a lost lock is held again");
        tokio::time::sleep(stage.ttl() / 20).await;
    }
    let kind = guard.release().await.err().map(|e| e.kind());
    ensure!(kind == Some(ErrorKind::Lost), "releasing after a loss should be Lost, and is {kind:?}");
    is_free(&b, &name).await
}

pub(crate) async fn old_holder_leaves_the_thief_alone(stage: Stage) -> Outcome {
    let (a, b) = (stage.client().await?, stage.client().await?);
    let mut attempt = 1;
    loop {
        let name = stage.name(&format!("lock {attempt}"));
        let asked = Instant::now();
        let old = take(&a, &name).await?;
        stage.seize(&name).await?;
        let thief = take(&b, &name).await?;
        // Who renews before the thief has come is told by that, and does not meet the thief's hold.
        let meets = asked.elapsed() < stage.ttl() / 4 || attempt == ATTEMPTS;
        ensure!(thief.token() > old.token(), "token {} came after {}", thief.token(), old.token());
        let reason = within("the loss is told", stage.ttl() + SLACK, old.lost()).await?;
        if told_why(reason, attempt)? && meets {
            drop(old);
            tokio::time::sleep(stage.ttl()).await;
            ensure!(thief.is_held(), "the thief lost the lock to the old holder");
            is_taken(&a, &name).await?;
            return Ok(thief.release().await?);
        }
        thief.release().await?;
        attempt += 1;
    }
}

/// The holder has to hear of it before another may have the lock, as after a failure.
pub(crate) async fn seized_stays_closed_for_its_lock_delay(stage: Stage) -> Outcome {
    let name = stage.name("lock");
    let (a, b) = (stage.client().await?, stage.client().await?);
    let delay = stage.ttl();
    let guard = match a.named(&name).lock_delay(delay).try_acquire().await {
        Err(e) if e.kind() == ErrorKind::InvalidConfig && stage.is_session() => {
            stage.chose("holds live in a session", "a lock delay that it cannot hold may be refused, and is");
            return is_free(&b, &name).await;
        }
        tried => tried?.expect_that("a new name should be free")?,
    };
    let waiting = b.named(&name).wait_at_most(stage.ttl() + delay + SLACK).acquire();
    let waiter = tokio::spawn(async move { (waiting.await, Instant::now()) });
    tokio::time::sleep(stage.ttl() / 8).await;
    let seized = Instant::now();
    stage.seize(&name).await?;
    let reason = within("the loss is told", stage.ttl() + SLACK, guard.lost()).await?;
    // Why is asserted elsewhere; whom the machine keeps from renewing until the deadline knows no better.
    let told = matches!(reason, LossReason::Revoked | LossReason::Expired);
    ensure!(told, "the service took the lock away, and the holder is told {reason:?}");
    let holder = b.inspect(&name).await?;
    let closed = seized.elapsed() < delay;
    ensure!(!closed || holder.is_none(), "the lock is closed, and held: {holder:?}");
    if closed {
        a.try_acquire(&name).await?.map_or(Ok(()), |_| {
            ensure!(seized.elapsed() >= delay, "granted {:?} after it was seized", seized.elapsed());
            Ok(())
        })?;
    }
    let (next, served) = within("the waiter is served", stage.ttl() + delay + SLACK, waiter).await??;
    let next = next?;
    let early = delay.saturating_sub(served.saturating_duration_since(seized));
    ensure!(early.is_zero(), "granted {early:?} before the lock delay of {delay:?} was over");
    ensure!(next.token() > guard.token(), "token {} came after {}", next.token(), guard.token());
    Ok(next.release().await?)
}

/// Directly at the engine, since a client that knows of its loss asks nobody.
pub(crate) async fn release_of_a_stolen_lease_never_frees_the_thiefs(stage: Stage) -> Outcome {
    let name = stage.name("lock");
    let (a, b) = (stage.engine().await?, stage.engine().await?);
    let (old, thief, third) = (stage.long_claim(&name)?, stage.long_claim(&name)?, stage.claim(&name)?);
    let lease = granted(a.try_acquire(&old).await)?.lease;
    stage.seize(&name).await?;
    let stolen = granted(b.try_acquire(&thief).await)?;
    let kind = lease.release().await.err().map(|e| e.kind());
    ensure!(kind == Some(ErrorKind::Lost), "releasing a stolen lease should be Lost, and is {kind:?}");
    contended(a.try_acquire(&third).await).expect_that("the thief's hold after the old one's release")?;
    a.abandon(&old).await?;
    contended(a.try_acquire(&third).await).expect_that("the thief's hold after the old claim was abandoned")?;
    let again = granted(b.try_acquire(&thief).await)?;
    ensure!(again.token == stolen.token, "the thief's token became {} from {}", again.token, stolen.token);
    Ok(again.lease.release().await?)
}

pub(crate) async fn loss_is_told_at_once_where_promised(stage: Stage) -> Outcome {
    let push = stage.promises(
        Capability::PushLoss,
        "a loss is told before the next renewal could bring it to light",
        "a loss is told with the next renewal",
    );
    let client = stage.client().await?;
    drop(take(&client, &stage.name("warm-up")).await?);
    // Whoever learns it by renewing learns it a third of the ttl after the acquire, never sooner.
    // A loaded machine may be late now and then, so one attempt of five must be in time.
    for attempt in 1..=5 {
        let name = stage.name(&format!("lock {attempt}"));
        let asked = Instant::now();
        let guard = take(&client, &name).await?;
        stage.seize(&name).await?;
        let reason = within("the loss is told", stage.ttl() + SLACK, guard.lost()).await?;
        let told = asked.elapsed();
        if !told_why(reason, 1)? {
            continue;
        }
        if !push || told < stage.ttl() / 3 {
            return Ok(());
        }
    }
    Err(crate::Failure::new("five losses were each told only when a renewal was due, or as expired"))
}

pub(crate) async fn work_is_cut_at_loss(stage: Stage) -> Outcome {
    let name = stage.name("lock");
    let client = stage.client().await?;
    let guard = take(&client, &name).await?;
    let done = guard.while_held(async { 7 }).await?;
    ensure!(done == 7, "work under the lock came to {done}");
    let (started, worked) = tokio::sync::oneshot::channel::<()>();
    let work = guard.while_held(async move {
        let _kept_until_cut = started;
        std::future::pending::<()>().await;
    });
    let cut = async {
        stage.seize(&name).await?;
        // Ends when the work is dropped.
        let _ = worked.await;
        Outcome::Ok(())
    };
    let (work, cut) = within("work is cut", stage.ttl() + SLACK, async { tokio::join!(work, cut) }).await?;
    cut?;
    let kind = work.err().map(|e| e.kind());
    ensure!(kind == Some(ErrorKind::Lost), "work that was cut is {kind:?}");
    ensure!(!guard.is_held(), "work was cut, and the lock is held");
    Ok(())
}

pub(crate) async fn monitors_agree_with_the_guard(stage: Stage) -> Outcome {
    let client = stage.client().await?;
    let (kept, lost) = (stage.name("released"), stage.name("seized"));
    let guard = take(&client, &kept).await?;
    let monitor = guard.monitor();
    ensure!(monitor.is_held() && monitor.token() == guard.token(), "the monitor shows another hold");
    ensure!(monitor.name().as_str() == kept, "the monitor shows another name");
    guard.release().await?;
    ensure!(!monitor.is_held(), "released, and the monitor says that it is held");
    let ended = within("the release is told", SLACK, monitor.ended()).await?;
    ensure!(ended == Ended::Released, "released, and the monitor says {ended:?}");
    let told = tokio::time::timeout(Duration::from_millis(50), monitor.lost()).await;
    ensure!(told.is_err(), "released by its guard, and the monitor says that it was lost");

    let guard = take(&client, &lost).await?;
    let (before, after) = (guard.monitor(), guard.monitor());
    let told = tokio::spawn(async move { before.lost().await });
    stage.seize(&lost).await?;
    let early = within("the loss is told", stage.ttl() + SLACK, told).await??;
    let late = within("a past loss is told", SLACK, after.lost()).await?;
    let own = within("a past loss is told", SLACK, guard.lost()).await?;
    ensure!(early == late && early == own, "one loss, told as {early:?}, {late:?} and {own:?}");
    ensure!(!after.is_held() && !guard.is_held(), "lost, and held");
    Ok(())
}

pub(crate) async fn stale_writer_is_refused(stage: Stage) -> Outcome {
    let level = stage.guarantees().level();
    if level < Some(Level::Fenced) {
        stage.chose("the level is below fenced", "tokens grow while the service runs on, as is asserted here");
    } else {
        stage.chose("the level is fenced or above", "tokens grow");
    }
    let name = stage.name("lock");
    let (a, b) = (stage.client().await?, stage.client().await?);
    let dir = tempfile::tempdir()?;
    let file = FencedFile::at(dir.path().join("value"));
    let old = a.named(&name).auto_renew(false).try_acquire().await?.expect_that("a new name should be free")?;
    let pass = file.enter(old.token())?.admitted()?;
    pass.write("old")?.admitted()?;
    let new = passes_on(&old, &b, stage.ttl() + SLACK).await?;
    let newer = file.enter(new.token())?.admitted()?;
    let Admission::Stale(stale) = pass.write("late")? else {
        return Err(crate::Failure::new("the old holder's late write was accepted"));
    };
    ensure!(stale.newest == new.token(), "refused because of {}", stale.newest);
    let found = newer.read()?.admitted()?;
    ensure!(found == "old", "the value is {found:?} after a write that was refused");
    newer.write("new")?.admitted()?;
    Ok(new.release().await?)
}
