//! Nested calls of one job share one hold, and exclude everybody else.

use super::cancel::{cut, some_time};
use crate::failure::{Expect, Outcome, ensure};
use crate::stage::{SLACK, Stage, drained, is_free, is_taken, take, within};
use fencelock_core::{ErrorKind, ReentrantScope};
use std::time::Duration;

pub(crate) async fn nested_acquires_share_one_hold(stage: Stage) -> Outcome {
    let name = stage.name("lock");
    let (client, other) = (stage.client().await?, stage.client().await?);
    let job = client.reentrant("req-7f3a");
    let outer = job.acquire(&name).await?;
    let nested = within("a nested acquire", SLACK, job.acquire(&name)).await??;
    let tried = client.reentrant("req-7f3a").try_acquire(&name).await?.expect_that("a nested try")?;
    ensure!(
        outer.token() == nested.token() && outer.claim_id() == tried.claim_id(),
        "nested calls of one scope have the tokens {}, {} and {}",
        outer.token(),
        nested.token(),
        tried.token()
    );
    ensure!(client.reentrant("another").try_acquire(&name).await?.is_none(), "two scopes of one client share a lock");
    is_taken(&other, &name).await?;
    let shown = other.inspect(&name).await?.expect_that("held, and inspect shows nobody")?;
    ensure!(shown.note.as_deref() == Some("req-7f3a"), "the scope's name is not its note: {:?}", shown.note);
    let token = outer.token();
    outer.release().await?;
    drop(nested);
    drained_to(&client, 1).await?;
    is_taken(&other, &name).await?;
    ensure!(tried.is_held(), "the first guards of the scope took the hold with them");
    tried.release().await?;
    let next = take(&other, &name).await?;
    ensure!(next.token() > token, "released with the last guard, and the next token is {}", next.token());
    ensure!(job.names() == 0, "the scope keeps what it has released");
    Ok(next.release().await?)
}

/// Waits until nothing is pending and so many locks are held.
async fn drained_to(client: &fencelock_core::LockClient, held: usize) -> Outcome {
    let done = || client.pending() == 0 && client.held() == held;
    crate::stage::until("the client has nothing pending", SLACK * 2, done).await
}

pub(crate) async fn joined_acquires_outlive_one_that_is_cancelled(stage: Stage) -> Outcome {
    let name = stage.name("lock");
    let (client, other) = (stage.client().await?, stage.client().await?);
    let held = take(&other, &name).await?;
    let job = client.reentrant("job");
    let first = tokio::spawn(job.acquire(&name));
    tokio::time::sleep(Duration::from_millis(50)).await;
    let limited = tokio::spawn(job.named(&name).wait_at_most(Duration::from_millis(200)).acquire());
    let patient = tokio::spawn(job.acquire(&name));
    let gave_up = within("a limited wait", SLACK, limited).await??.err().map(|e| e.kind());
    ensure!(gave_up == Some(ErrorKind::Timeout), "a limited wait beside others ended with {gave_up:?}");
    first.abort();
    let _ = first.await;
    ensure!(job.try_acquire(&name).await?.is_none(), "a try in the scope took what another holds");
    held.release().await?;
    let granted = within("the joiner that is left", SLACK * 2, patient).await???;
    ensure!(granted.is_held(), "granted, and not held");
    is_taken(&other, &name).await?;
    granted.release().await?;
    is_free(&other, &name).await?;
    drained(&client).await
}

pub(crate) async fn a_loss_ends_all_nested_guards(stage: Stage) -> Outcome {
    let name = stage.name("lock");
    let (client, other) = (stage.client().await?, stage.client().await?);
    let job = client.reentrant("job");
    let (outer, nested) = (job.acquire(&name).await?, job.acquire(&name).await?);
    stage.seize(&name).await?;
    let told = within("the loss is told", stage.ttl() + SLACK, nested.lost()).await?;
    ensure!(outer.lost().await == told && !outer.is_held(), "one guard lost the hold and another has it");
    let next = within("a new hold of the scope", SLACK * 2, job.acquire(&name)).await??;
    ensure!(next.token() > outer.token(), "after a loss the scope's token is {}", next.token());
    let kinds = (outer.release().await.err().map(|e| e.kind()), nested.release().await.err().map(|e| e.kind()));
    ensure!(kinds == (Some(ErrorKind::Lost), Some(ErrorKind::Lost)), "lost guards were released with {kinds:?}");
    ensure!(next.is_held(), "releasing the lost guards ended the new hold");
    is_taken(&other, &name).await?;
    next.release().await?;
    is_free(&other, &name).await
}

pub(crate) async fn nested_options_must_fit_the_hold(stage: Stage) -> Outcome {
    let name = stage.name("lock");
    let client = stage.client().await?;
    let job = client.reentrant("job");
    let outer = job.named(&name).max_hold(Duration::from_secs(60)).acquire().await?;
    for (what, asked) in [
        ("a longer ttl", job.named(&name).ttl(stage.ttl() + Duration::from_millis(1))),
        ("a lock delay", job.named(&name).lock_delay(Duration::from_millis(1))),
        ("a shorter longest hold", job.named(&name).max_hold(Duration::from_secs(59))),
        ("no longest hold", job.named(&name).max_hold(None)),
        ("a fixed lease", job.named(&name).auto_renew(false)),
    ] {
        let kind = asked.acquire().await.err().map(|e| e.kind());
        ensure!(kind == Some(ErrorKind::InvalidConfig), "{what} in a hold that does not give it: {kind:?}");
    }
    job.named(&name).ttl(stage.ttl()).note("another").acquire().await?.release().await?;
    ensure!(outer.is_held(), "a nested call ended the hold");
    Ok(outer.release().await?)
}

async fn nested_work(job: &ReentrantScope, name: &str) -> Outcome {
    let outer = job.acquire(name).await?;
    tokio::time::sleep(Duration::from_micros(fastrand::u64(0..3_000))).await;
    let nested = job.acquire(name).await?;
    ensure!(!outer.is_held() || nested.token() == outer.token(), "two tokens in one scope");
    outer.release().await?;
    Ok(nested.release().await?)
}

pub(crate) async fn nested_work_cancelled_at_random_instants(stage: Stage) -> Outcome {
    let name = stage.name("lock");
    let (client, rival, other) = (stage.client().await?, stage.client().await?, stage.client().await?);
    let (job, against) = (client.reentrant("job"), rival.reentrant("rival"));
    for round in 0..60 {
        let limit = || some_time(round, Duration::from_millis(12));
        let one = cut(limit(), nested_work(&job, &name));
        let two = cut(limit(), nested_work(&job, &name));
        let three = cut(limit(), nested_work(&against, &name));
        let (one, two, three) = tokio::join!(one, two, three);
        for ended in [one, two, three].into_iter().flatten() {
            ended?;
        }
        if round % 4 == 0 {
            drained(&client).await?;
            drained(&rival).await?;
            is_free(&other, &name).await?;
        }
    }
    drained(&client).await?;
    drained(&rival).await?;
    ensure!((job.names(), against.names()) == (0, 0), "a scope keeps what was cancelled");
    is_free(&other, &name).await
}
