//! How long a hold lasts.

use super::exclusion::Waiting;
use crate::failure::{Expect, Failure, Outcome, ensure};
use crate::stage::{SLACK, Stage, is_free, is_taken, take, until, within};
use fencelock_core::{ErrorKind, LockClient, LockGuard, LossReason, MAX_TTL, MIN_TTL};
use std::time::{Duration, Instant};

pub(crate) async fn outlives_its_ttl(stage: Stage) -> Outcome {
    let name = stage.name("lock");
    let (a, b) = (stage.client().await?, stage.client().await?);
    let guard = take(&a, &name).await?;
    let started = Instant::now();
    while started.elapsed() < stage.ttl() * 3 {
        ensure!(guard.is_held(), "not renewed: lost after {:?} of {:?}", started.elapsed(), stage.ttl());
        is_taken(&b, &name).await?;
        tokio::time::sleep(stage.ttl() / 5).await;
    }
    guard.release().await?;
    is_free(&b, &name).await
}

pub(crate) async fn stays_free_after_release(stage: Stage) -> Outcome {
    let name = stage.name("lock");
    let (a, b) = (stage.client().await?, stage.client().await?);
    let guard = take(&a, &name).await?;
    // Time is given back by a renewal alone, so that one is under way.
    let mut left = guard.remaining();
    let renewed = || guard.remaining() > std::mem::replace(&mut left, guard.remaining());
    until("the hold is renewed", stage.ttl() + SLACK, renewed).await?;
    guard.release().await?;
    let started = Instant::now();
    for _ in 0..20 {
        let holder = b.inspect(&name).await?;
        ensure!(holder.is_none(), "released, and held again after {:?}: {holder:?}", started.elapsed());
        tokio::time::sleep(stage.ttl() / 20).await;
    }
    is_free(&b, &name).await
}

async fn fixed(stage: &Stage, client: &LockClient, name: &str) -> Outcome<LockGuard> {
    let lock = client.named(name).ttl(stage.ttl()).auto_renew(false);
    lock.try_acquire().await?.expect_that("a new name should be free")
}

/// Asks for the lock until it is granted, which must not be while the old holder believes.
pub(crate) async fn passes_on(old: &LockGuard, to: &LockClient, limit: Duration) -> Outcome<LockGuard> {
    Ok(watched(old, to, limit).await?.0)
}

/// As [`passes_on`], with the longest time in which nobody asked: what was granted early in it went unseen.
async fn watched(old: &LockGuard, to: &LockClient, limit: Duration) -> Outcome<(LockGuard, Duration)> {
    let started = Instant::now();
    let (mut last, mut unseen) = (started, Duration::ZERO);
    loop {
        unseen = unseen.max(last.elapsed());
        last = Instant::now();
        if let Some(next) = to.try_acquire(old.name().as_str()).await? {
            ensure!(!old.is_held(), "granted to another while the holder may still believe for {:?}", old.remaining());
            ensure!(next.token() > old.token(), "token {} came after {}", next.token(), old.token());
            return Ok((next, unseen));
        }
        ensure!(started.elapsed() < limit, "not free after {limit:?}");
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
}

pub(crate) async fn fixed_lease_ends(stage: Stage) -> Outcome {
    let (a, b) = (stage.client().await?, stage.client().await?);
    // A machine that stands still keeps one from seeing that a lease ended early.
    for round in 1..=5 {
        let name = stage.name(&format!("lock {round}"));
        let guard = fixed(&stage, &a, &name).await?;
        let granted = stage.ttl().max(guard.remaining());
        let (next, unseen) = watched(&guard, &b, granted + SLACK).await?;
        let reason = within("a past loss is told", SLACK, guard.lost()).await?;
        ensure!(reason == LossReason::Expired, "a fixed lease ended with {reason:?}");
        let kind = guard.release().await.err().map(|e| e.kind());
        ensure!(kind == Some(ErrorKind::Lost), "releasing an expired lease should be Lost, and is {kind:?}");
        is_taken(&a, &name).await?;
        next.release().await?;
        if unseen < stage.ttl() / 4 {
            return Ok(());
        }
    }
    Err(Failure::new("this machine is too slow for the ttl of the harness: five leases ended unseen"))
}

/// Extends; false where the engine may say, and says, that it cannot.
async fn extend(stage: &Stage, guard: &LockGuard, ttl: Duration) -> Outcome<bool> {
    match guard.extend(ttl).await {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == ErrorKind::Unsupported && stage.is_session() => {
            stage.chose("holds live in a session", "extending one may be unsupported, and is");
            Ok(false)
        }
        Err(e) => Err(e.into()),
    }
}

pub(crate) async fn fixed_lease_can_be_extended(stage: Stage) -> Outcome {
    let (a, b) = (stage.client().await?, stage.client().await?);
    // Each extension must come before the last has run out, which a loaded machine may miss.
    for round in 1..=5 {
        let name = stage.name(&format!("lock {round}"));
        let guard = fixed(&stage, &a, &name).await?;
        match extended_over_and_over(&stage, &guard, &b).await? {
            Extended::TooLate => continue,
            Extended::Unsupported => return Ok(()),
            Extended::Throughout => {}
        }
        passes_on(&guard, &b, stage.ttl() + SLACK).await?.release().await?;
        let kind = guard.extend(stage.ttl()).await.err().map(|e| e.kind());
        ensure!(kind == Some(ErrorKind::Lost), "extending what is lost should be Lost, and is {kind:?}");
        return Ok(());
    }
    Err(Failure::new("this machine is too slow for the ttl of the harness: five times an extension came too late"))
}

enum Extended {
    Throughout,
    TooLate,
    Unsupported,
}

async fn extended_over_and_over(stage: &Stage, guard: &LockGuard, other: &LockClient) -> Outcome<Extended> {
    let mut since = Instant::now();
    for time in 1..=5 {
        tokio::time::sleep(stage.ttl() / 3).await;
        let asked = Instant::now();
        let extended = extend(stage, guard, stage.ttl()).await;
        if since.elapsed() > stage.ttl() * 9 / 10 {
            return Ok(Extended::TooLate);
        }
        if !extended.expect_that(format_args!("extension {time}"))? {
            return Ok(Extended::Unsupported);
        }
        let tried = other.try_acquire(guard.name().as_str()).await?;
        if asked.elapsed() > stage.ttl() * 9 / 10 {
            return Ok(Extended::TooLate);
        }
        ensure!(guard.is_held(), "extended, and not held");
        ensure!(tried.is_none(), "extended, and granted to another");
        since = asked;
    }
    Ok(Extended::Throughout)
}

pub(crate) async fn renewing_hold_refuses_extension(stage: Stage) -> Outcome {
    let name = stage.name("lock");
    let client = stage.client().await?;
    let guard = take(&client, &name).await?;
    let kind = guard.extend(stage.ttl()).await.err().map(|e| e.kind());
    ensure!(kind == Some(ErrorKind::Unsupported), "extending a renewing hold is {kind:?}");
    Ok(guard.release().await?)
}

pub(crate) async fn extension_takes_nothing_away(stage: Stage) -> Outcome {
    let (a, b) = (stage.client().await?, stage.client().await?);
    // A machine that stands still keeps one from extending in time, or from seeing that a lease ended early.
    for round in 1..=5 {
        let name = stage.name(&format!("lock {round}"));
        let guard = fixed(&stage, &a, &name).await?;
        let (asked, promised) = (Instant::now(), guard.remaining());
        // It may be an old one that arrives late, after one that gave more.
        let extended = extend(&stage, &guard, MIN_TTL).await;
        if asked.elapsed() >= stage.ttl() / 4 {
            continue;
        }
        if extended? {
            // Read before the clock, so that time between the two readings counts for the engine.
            let now = guard.remaining();
            let left = promised.saturating_sub(asked.elapsed());
            ensure!(now >= left, "{left:?} were left, and are now {now:?}");
        }
        let (next, unseen) = watched(&guard, &b, promised + SLACK).await?;
        ensure!(asked.elapsed() >= promised, "promised for {promised:?}, and given away after {:?}", asked.elapsed());
        next.release().await?;
        if unseen < stage.ttl() / 4 {
            return Ok(());
        }
    }
    Err(Failure::new("this machine is too slow for the ttl of the harness: five leases ended unseen"))
}

pub(crate) async fn longest_hold_is_lost_and_passed_on(stage: Stage) -> Outcome {
    let name = stage.name("lock");
    let (a, b) = (stage.client().await?, stage.client().await?);
    let most = stage.ttl() * 3 / 2;
    let asked = Instant::now();
    let guard = a.named(&name).max_hold(most).try_acquire().await?.expect_that("a new name should be free")?;
    let reason = within("the longest hold is told", most + SLACK, guard.lost()).await?;
    ensure!(reason == LossReason::MaxHold, "the longest hold ended with {reason:?}");
    ensure!(asked.elapsed() >= most, "the longest hold of {most:?} ended after {:?}", asked.elapsed());
    passes_on(&guard, &b, stage.ttl() * 2 + SLACK).await?.release().await?;
    let kind = guard.release().await.err().map(|e| e.kind());
    ensure!(kind == Some(ErrorKind::Lost), "releasing after the longest hold is {kind:?}");
    Ok(())
}

pub(crate) async fn lock_delay_counts_after_failure_only(stage: Stage) -> Outcome {
    let name = stage.name("lock");
    let (a, b) = (stage.client().await?, stage.client().await?);
    let delay = stage.ttl();
    let delayed = a.named(&name).lock_delay(delay).auto_renew(false);
    let guard = match delayed.try_acquire().await {
        Err(e) if e.kind() == ErrorKind::InvalidConfig && stage.is_session() => {
            stage.chose("holds live in a session", "a lock delay that it cannot hold may be refused, and is");
            return is_free(&b, &name).await;
        }
        tried => tried?.expect_that("a new name should be free")?,
    };
    guard.release().await?;
    is_free(&b, &name).await.expect_that("after a release there is no delay")?;

    let guard = delayed.try_acquire().await?.expect_that("released, so free")?;
    // Read before `remaining`, so that the sum is not after the deadline.
    let read = Instant::now();
    let deadline = read + guard.remaining();
    let next = passes_on(&guard, &b, stage.ttl() + delay + SLACK).await?;
    let early = (deadline + delay).saturating_duration_since(Instant::now());
    ensure!(early.is_zero(), "granted {early:?} before the lock delay of {delay:?} was over");
    Ok(next.release().await?)
}

pub(crate) async fn ttl_at_and_beyond_its_bounds(stage: Stage) -> Outcome {
    let name = stage.name("lock");
    let (a, b) = (stage.client().await?, stage.client().await?);
    let day = Duration::from_secs(86_400);
    let almost = MIN_TTL.checked_sub(Duration::from_millis(1)).unwrap_or_default();
    for bad in [Duration::ZERO, Duration::from_nanos(1), almost, day * 8, day * 3_650, Duration::MAX] {
        let kind = a.named(&name).ttl(bad).try_acquire().await.err().map(|e| e.kind());
        ensure!(kind == Some(ErrorKind::InvalidConfig), "a ttl of {bad:?} should be InvalidConfig, and is {kind:?}");
    }
    for short in [MIN_TTL, MIN_TTL + Duration::from_nanos(100)] {
        let lock = a.named(&name).ttl(short).auto_renew(false);
        let whole = lock.options().clone().checked()?.ttl;
        ensure!(whole >= short && whole.subsec_nanos() % 1_000_000 == 0, "{short:?} does not round up to {whole:?}");
        let guard = within("the shortest ttl is granted", SLACK * 2, lock.acquire()).await??;
        let granted = whole.max(stage.ttl());
        ensure!(guard.remaining() <= granted, "a ttl of {short:?} is believed for {:?}", guard.remaining());
        passes_on(&guard, &b, granted + SLACK).await?.release().await?;
    }
    match a.named(&name).ttl(MAX_TTL).try_acquire().await {
        Err(e) if e.kind() == ErrorKind::InvalidConfig && stage.is_session() => {
            stage.chose("holds live in a session", "a ttl longer than the session may be refused, and is");
        }
        longest => longest?.expect_that("the longest ttl")?.release().await?,
    }
    is_free(&b, &name).await
}

/// Others wait while the lock is renewed, and are served when it is dropped.
pub(crate) async fn waiter_outwaits_renewals(stage: Stage) -> Outcome {
    let name = stage.name("lock");
    let (a, b) = (stage.client().await?, stage.client().await?);
    let guard = take(&a, &name).await?;
    let lock = b.named(&name);
    let mut waiting = Waiting::new(async move { lock.acquire().await });
    ensure!(!waiting.begin().await?, "granted while another holds");
    let waiting = tokio::spawn(waiting);
    tokio::time::sleep(stage.ttl() * 2).await;
    ensure!(guard.is_held() && !waiting.is_finished(), "the wait ended while another held");
    drop(guard);
    let next = within("the waiter is served", SLACK * 2, waiting).await???;
    next.release().await?;
    until("the dropped guard is cleared up", SLACK, || a.held() == 0).await
}
