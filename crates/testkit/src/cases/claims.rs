//! One claim, one hold: asked again, too late, or after its undo. Directly at the engine.

use crate::failure::{Expect, Failure, Outcome, ensure};
use crate::stage::{Stage, contended, granted};
use fencelock_core::{Attempt, Claim, DistributedLock, FakeClock, LockName, Terms};
use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, Instant};

pub(crate) async fn same_claim_twice_is_one_hold(stage: Stage) -> Outcome {
    let (engine, other) = (stage.engine().await?, stage.engine().await?);
    // The second request must come in time and the look after it must come late; a loaded machine may miss that.
    for round in 1..=5 {
        let name = stage.name(&format!("lock {round}"));
        let (claim, rival) = (stage.claim(&name)?, stage.claim(&name)?);
        let asked = Instant::now();
        let first = granted(engine.try_acquire(&claim).await)?;
        tokio::time::sleep(stage.ttl() * 3 / 5).await;
        let second = engine.try_acquire(&claim).await;
        if asked.elapsed() >= stage.ttl() {
            engine.abandon(&claim).await?;
            continue;
        }
        let again = Instant::now();
        let second = granted(second).expect_that("the same claim, asked again")?;
        ensure!(second.token == first.token, "one claim has tokens {} and {}", first.token, second.token);
        tokio::time::sleep(stage.ttl() * 3 / 5).await;
        let rivalled = other.try_acquire(&rival).await;
        if again.elapsed() >= stage.ttl() * 9 / 10 {
            engine.abandon(&claim).await?;
            other.abandon(&rival).await?;
            continue;
        }
        contended(rivalled).expect_that("asked again, so its time counts anew")?;
        // Held once, so undone by one undo.
        engine.abandon(&claim).await?;
        let next = granted(other.try_acquire(&rival).await).expect_that("one undo of one hold")?;
        ensure!(next.token > first.token, "token {} came after {}", next.token, first.token);
        return Ok(next.lease.release().await?);
    }
    Err(Failure::new("this machine is too slow for the ttl of the harness: five times the claim ran out"))
}

/// The claim whose hold is gone asks once more, as a delayed copy of its request would.
async fn late_copy_leaves_no_lock(engine: &dyn DistributedLock, claim: &Claim, rival: &Claim) -> Outcome {
    if let Ok(Attempt::Granted(grant)) = engine.try_acquire(claim).await {
        return Err(Failure::new(format!("a dead claim was granted the lock, with token {}", grant.token)));
    }
    let grant = granted(engine.try_acquire(rival).await).expect_that("a late copy of a dead claim's request")?;
    if let Ok(Attempt::Granted(_)) = engine.try_acquire(claim).await {
        return Err(Failure::new("a dead claim was granted a lock that another holds"));
    }
    Ok(grant.lease.release().await?)
}

pub(crate) async fn late_acquire_after_abandon_leaves_no_lock(stage: Stage) -> Outcome {
    let engine = stage.engine().await?;
    let name = stage.name("lock");
    let (claim, rival) = (stage.long_claim(&name)?, stage.long_claim(&name)?);
    granted(engine.try_acquire(&claim).await)?;
    // A copy of the request is still on its way, as far as anybody knows.
    drop(claim.request());
    engine.abandon(&claim).await?;
    late_copy_leaves_no_lock(&*engine, &claim, &rival).await?;

    // The undo overtakes the only request.
    let (claim, rival) = (stage.long_claim(&name)?, stage.long_claim(&name)?);
    drop(claim.request());
    engine.abandon(&claim).await?;
    late_copy_leaves_no_lock(&*engine, &claim, &rival).await
}

pub(crate) async fn late_acquire_after_release_leaves_no_lock(stage: Stage) -> Outcome {
    let engine = stage.engine().await?;
    let name = stage.name("lock");
    let (claim, rival) = (stage.long_claim(&name)?, stage.long_claim(&name)?);
    let grant = granted(engine.try_acquire(&claim).await)?;
    drop(claim.request());
    grant.lease.release().await?;
    late_copy_leaves_no_lock(&*engine, &claim, &rival).await
}

pub(crate) async fn abandoning_nothing_is_fine(stage: Stage) -> Outcome {
    let engine = stage.engine().await?;
    let name = stage.name("lock");
    let (never, twice, next) = (stage.long_claim(&name)?, stage.long_claim(&name)?, stage.long_claim(&name)?);
    engine.abandon(&never).await.expect_that("abandoning a claim that was never sent")?;
    granted(engine.try_acquire(&twice).await)?;
    engine.abandon(&twice).await?;
    engine.abandon(&twice).await.expect_that("abandoning twice")?;
    engine.abandon(&never).await?;
    Ok(granted(engine.try_acquire(&next).await)?.lease.release().await?)
}

pub(crate) async fn abandon_never_frees_anothers_hold(stage: Stage) -> Outcome {
    let (engine, other) = (stage.engine().await?, stage.engine().await?);
    let name = stage.name("lock");
    let (holder, tried, never, third) =
        (stage.long_claim(&name)?, stage.long_claim(&name)?, stage.long_claim(&name)?, stage.long_claim(&name)?);
    let grant = granted(engine.try_acquire(&holder).await)?;
    contended(other.try_acquire(&tried).await)?;
    for idle in [&tried, &never] {
        other.abandon(idle).await?;
        engine.abandon(idle).await?;
        contended(other.try_acquire(&third).await).expect_that("the hold after another claim was abandoned")?;
    }
    let again = granted(engine.try_acquire(&holder).await)?;
    ensure!(again.token == grant.token, "the hold's token became {} from {}", again.token, grant.token);
    Ok(again.lease.release().await?)
}

/// The holder's clock jumps while its request is under way; a time read after the answer shows the jump.
pub(crate) async fn time_counts_from_before_the_request(stage: Stage) -> Outcome {
    let engine = stage.engine().await?;
    if stage.is_session() {
        stage.chose("holds live in a session", "time counts from its last keepalive, which is in the past");
        let claim = stage.claim(&stage.name("lock"))?;
        let grant = granted(engine.try_acquire(&claim).await)?;
        ensure!(grant.sent_at <= claim.now(), "`sent_at` is in the future");
        return Ok(grant.lease.release().await?);
    }
    let mut jumped = 0;
    for polls in 1..=12 {
        for round in 0..3 {
            let name = stage.name(&format!("lock {polls} {round}"));
            let fake = FakeClock::new();
            let terms = Terms::new(LockName::new(&name)?, stage.ttl()).with_holder("testkit").with_clock(fake.clock());
            let claim = terms.mint()?;
            let mut future = engine.try_acquire(&claim);
            let mut left = polls;
            let early = poll_fn(|cx| {
                left -= 1;
                match future.as_mut().poll(cx) {
                    Poll::Pending if left > 0 => Poll::Pending,
                    polled => Poll::Ready(polled.is_ready()),
                }
            })
            .await;
            if !early && claim.is_unanswered() {
                // Time for the answer to come, while nobody looks at it.
                tokio::time::sleep(Duration::from_millis(30)).await;
                let before = claim.now();
                fake.suspend(Duration::from_secs(3_600));
                if let Ok(Attempt::Granted(grant)) = future.await {
                    jumped += 1;
                    if grant.sent_at <= before {
                        engine.abandon(&claim).await?;
                        return Ok(());
                    }
                }
            }
            engine.abandon(&claim).await?;
        }
    }
    if jumped > 0 {
        let message = "`sent_at` was read after the answer had come: with every jump of the clock between the two";
        return Err(Failure::new(format!("{message}, {jumped} times, it was later than the jump")));
    }
    stage.chose("no request was ever seen under way", "there is no time to be counted between request and answer");
    Ok(())
}
