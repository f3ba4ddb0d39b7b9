//! The service is away, hangs, and comes back.

use crate::failure::{Expect, Failure, Outcome, ensure};
use crate::stage::{SLACK, Stage, drained, is_free, take, until, within};
use fencelock_core::{Ended, ErrorKind, LockGuard, LossReason};
use std::time::{Duration, Instant};

pub(crate) async fn unreachable_is_lost_by_the_deadline(stage: Stage) -> Outcome {
    let name = stage.name("lock");
    let client = stage.client().await?;
    let guard = take(&client, &name).await?;
    stage.interrupt().await?;
    let away = Instant::now();
    lost_by_the_deadline(&stage, &guard, away).await?;
    stage.heal().await?;
    usable_again(&stage, guard, &name).await?;
    // The client itself, not rebuilt.
    let guard = within("the client works again", SLACK * 2, client.acquire(&name)).await??;
    guard.release().await?;
    drained(&client).await
}

/// The renewing task is in the middle of its work when the service begins to hang.
pub(crate) async fn hung_renewal_is_lost_by_the_deadline(stage: Stage) -> Outcome {
    let name = stage.name("lock");
    let client = stage.client().await?;
    let guard = take(&client, &name).await?;
    tokio::time::sleep(stage.ttl() * 2).await;
    ensure!(guard.is_held(), "lost before the service was interrupted");
    stage.interrupt().await?;
    let away = Instant::now();
    lost_by_the_deadline(&stage, &guard, away).await?;
    stage.heal().await?;
    usable_again(&stage, guard, &name).await?;
    drained(&client).await
}

/// Whatever the service acknowledged was sent before `away`. So from `away + ttl`
/// on nobody may believe; the clock is read before each question.
async fn lost_by_the_deadline(stage: &Stage, guard: &LockGuard, away: Instant) -> Outcome {
    // What was granted can be longer than what was asked for.
    let granted = stage.ttl().max(guard.remaining());
    let monitor = guard.monitor();
    let told = async {
        tokio::pin! { let lost = monitor.lost(); }
        loop {
            let asked = away.elapsed();
            let held = guard.is_held();
            ensure!(!held || asked < granted, "believed {asked:?} after the service went away; the ttl is {granted:?}");
            ensure!(held || !guard.in_jeopardy(), "lost and in jeopardy at once");
            tokio::select! {
                biased;
                reason = &mut lost => return Ok::<_, Failure>(reason),
                () = tokio::time::sleep(Duration::from_millis(1)) => {}
            }
        }
    };
    let reason = within("the loss is told", granted + SLACK, told).await??;
    ensure!(!guard.is_held(), "told that it was lost, and held");
    ensure!(
        matches!(reason, LossReason::Expired | LossReason::SessionEnded),
        "the service was away and the loss is put down to {reason:?}"
    );
    Ok(())
}

/// Loss is final, and everything works again.
async fn usable_again(stage: &Stage, old: LockGuard, name: &str) -> Outcome {
    let other = stage.client().await?;
    let token = old.token();
    let next =
        within("others get the lock after the service healed", stage.ttl() + SLACK * 2, other.acquire(name)).await??;
    ensure!(next.token() > token, "token {} came after {token}", next.token());
    ensure!(!old.is_held(), "a lost lock is held again");
    let kind = old.release().await.err().map(|e| e.kind());
    ensure!(kind == Some(ErrorKind::Lost), "releasing a lost lock should be Lost, and is {kind:?}");
    tokio::time::sleep(Duration::from_millis(20)).await;
    ensure!(next.is_held(), "the next holder lost the lock to the old one's release");
    next.release().await?;
    is_free(&other, name).await
}
