//! The service is away, hangs, and comes back.

use crate::failure::{Expect, Failure, Outcome, ensure};
use crate::stage::{SLACK, Stage, drained, is_free, take, until, within};
use fencelock_core::{Ended, ErrorKind, LockGuard, LossReason};
use std::time::{Duration, Instant};

/// How often a hold is looked at that is in jeopardy.
const JEOPARDY_LOOKS: u32 = 40;

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

pub(crate) async fn short_interruption_is_jeopardy_and_no_loss(stage: Stage) -> Outcome {
    let client = stage.client().await?;
    // Long enough that a loaded machine renews in what an interruption leaves of it; a session's time is the service's.
    let ttl = if stage.is_session() { stage.ttl() } else { stage.ttl().max(Duration::from_secs(2)) };
    // Renewal is overdue 0.43 ttl after the acquire, the deadline comes at 0.98. A slow machine may miss what is between.
    for round in 1..=5 {
        let name = stage.name(&format!("lock {round}"));
        let asked = Instant::now();
        let guard = client.named(&name).ttl(ttl).try_acquire().await?.expect_that("a new name should be free")?;
        stage.interrupt().await?;
        // Once it is seen, renewal is given the time to find nobody, and must not take that for a loss.
        let mut looks = JEOPARDY_LOOKS;
        while asked.elapsed() < ttl * 3 / 5 && looks > 0 {
            looks -= u32::from(guard.in_jeopardy());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let seen = looks < JEOPARDY_LOOKS;
        stage.heal_at_once().await?;
        if asked.elapsed() > ttl * 7 / 10 {
            continue;
        }
        ensure!(guard.is_held(), "lost by an interruption of {:?}; the ttl is {:?}", asked.elapsed(), ttl);
        ensure!(seen, "no renewal was answered for {:?}, and the hold was not in jeopardy", asked.elapsed());
        until("the hold is out of jeopardy", ttl + SLACK, || !guard.in_jeopardy()).await?;
        ensure!(guard.is_held(), "lost by an interruption of {:?}, shorter than the ttl", ttl * 3 / 5);
        tokio::time::sleep(ttl * 3 / 2).await;
        ensure!(guard.is_held(), "not renewed any more after an interruption");
        return Ok(guard.release().await?);
    }
    Err(Failure::new("this machine is too slow for the ttl of the harness: five interruptions took too long"))
}

pub(crate) async fn release_while_unreachable_is_made_good(stage: Stage) -> Outcome {
    let (released, dropped) = (stage.name("released"), stage.name("dropped"));
    let (client, other) = (stage.client().await?, stage.client().await?);
    let (guard, second) = (take(&client, &released).await?, take(&client, &dropped).await?);
    let monitor = guard.monitor();
    stage.interrupt().await?;
    drop(second);
    let kind = within("a release ends", SLACK * 3, guard.release()).await?.err().map(|e| e.kind());
    ensure!(kind == Some(ErrorKind::Unavailable), "a release without an answer should be Unavailable, and is {kind:?}");
    ensure!(!monitor.is_held(), "given up, and held");
    let ended = within("the end is told", SLACK, monitor.ended()).await?;
    ensure!(ended == Ended::Released, "given up by its holder, and told {ended:?}");
    stage.heal().await?;
    for name in [released, dropped] {
        let next = within("free within the ttl", stage.ttl() + SLACK * 2, other.acquire(&name)).await??;
        next.release().await?;
    }
    drained(&client).await
}

pub(crate) async fn acquire_while_unreachable_is_unavailable(stage: Stage) -> Outcome {
    let (tried, waited) = (stage.name("tried"), stage.name("waited"));
    let (client, other) = (stage.client().await?, stage.client().await?);
    stage.interrupt().await?;
    let limit = Duration::from_millis(500);
    let started = Instant::now();
    let kind = client.named(&waited).wait_at_most(limit).acquire().await.err().map(|e| e.kind());
    ensure!(kind == Some(ErrorKind::Unavailable), "waiting for a service that is away is {kind:?}");
    let took = started.elapsed();
    ensure!(took < limit + SLACK, "a wait of at most {limit:?} took {took:?}");
    let answer = within("a try ends", SLACK * 3, client.try_acquire(&tried)).await?;
    let kind = answer.err().map(|e| e.kind());
    ensure!(kind == Some(ErrorKind::Unavailable), "trying a service that is away is {kind:?}");
    stage.heal().await?;
    // What was sent meanwhile may arrive only now, and must leave nothing.
    drained(&client).await.expect_that("after the service healed")?;
    for name in [&waited, &tried] {
        is_free(&other, name).await?;
    }
    tokio::time::sleep(stage.ttl() / 2).await;
    for name in [&waited, &tried] {
        is_free(&other, name).await?;
        is_free(&client, name).await?;
    }
    Ok(())
}

/// On a runtime of one thread, whatever blocks it stops the clock that ticks beside it.
pub(crate) async fn nothing_blocks_its_thread(stage: Stage) -> Outcome {
    let stage = std::sync::Arc::new(stage);
    let (there, name) = (std::sync::Arc::clone(&stage), stage.name("lock"));
    let (connected, away) = (tokio::sync::oneshot::channel(), tokio::sync::oneshot::channel());
    let longest = super::drops::on_a_thread(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let client = there.client().await?;
            let guard = take(&client, &name).await?;
            let _ = connected.0.send(());
            let _ = away.1.await;
            let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
            let tick = async {
                loop {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    longest = longest.max(last.elapsed());
                    last = Instant::now();
                }
            };
            let calls = async {
                let limit = Duration::from_millis(500);
                let lock = client.named(&format!("{name} too")).wait_at_most(limit);
                let _ = tokio::join!(lock.acquire(), tokio::time::timeout(limit, lock.try_acquire()));
                let _ = tokio::join!(
                    tokio::time::timeout(limit, client.inspect(&name)),
                    tokio::time::timeout(limit, guard.release())
                );
            };
            tokio::select! {
                () = tick => {}
                () = calls => {}
            }
            Outcome::Ok(longest.max(last.elapsed()))
        })
    });
    let interrupt = async {
        let _ = connected.1.await;
        stage.interrupt().await?;
        let _ = away.0.send(());
        Outcome::Ok(())
    };
    let (longest, interrupted) = tokio::join!(longest, interrupt);
    interrupted?;
    let longest = longest?;
    ensure!(
        longest < Duration::from_millis(1_500),
        "a call blocked its thread for {longest:?} while the service was away"
    );
    Ok(())
}
