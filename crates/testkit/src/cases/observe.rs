//! What is told to those who ask, wait or look.

use crate::failure::{Expect, Outcome, ensure};
use crate::stage::{SLACK, Stage, drained, is_free, take};
use fencelock_core::{DistributedLock, ErrorKind, LockClient, LockGuard, LockMonitor, NamedLock};
use std::future::Future;
use std::time::{Duration, Instant};

pub(crate) async fn inspect_shows_the_holder(stage: Stage) -> Outcome {
    let name = stage.name("lock");
    let (a, b) = (stage.client_called("holder-of-it").await?, stage.client().await?);
    ensure!(b.inspect(&name).await?.is_none(), "a new name counts as held");
    let guard = a.named(&name).note("req-7f3a é").try_acquire().await?.expect_that("a new name should be free")?;
    let shown = b.inspect(&name).await?.expect_that("held, and inspect shows nobody")?;
    ensure!(&*shown.holder == "holder-of-it", "inspect shows the holder {:?}", shown.holder);
    ensure!(shown.note.as_deref() == Some("req-7f3a é"), "inspect shows the note {:?}", shown.note);
    ensure!(shown.token == guard.token(), "inspect shows the token {}, the guard {}", shown.token, guard.token());
    // Not every service knows who waits; one that does knows that there is one.
    if shown.waiters.is_some() {
        ensure!(shown.waiters == Some(0), "nobody waits, and inspect shows {:?}", shown.waiters);
        let waiting = tokio::spawn(b.named(&name).wait_forever().acquire());
        let started = Instant::now();
        while b.inspect(&name).await?.and_then(|shown| shown.waiters) != Some(1) {
            ensure!(started.elapsed() < SLACK, "one waits, and inspect does not show it");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        waiting.abort();
        let _ = waiting.await;
        drained(&b).await?;
    }
    match b.list(&name).await {
        Ok(listed) => {
            let tokens: Vec<_> = listed.iter().map(|(name, holder)| (name.as_str(), holder.token)).collect();
            ensure!(tokens == [(name.as_str(), guard.token())], "the list of that name is {tokens:?}");
        }
        Err(e) if e.kind() == ErrorKind::Unsupported => {
            let admin = stage.engine().await?.admin().is_some();
            ensure!(!admin, "there is an Admin, and listing is unsupported");
            stage.chose("there is no Admin", "listing is unsupported");
        }
        Err(e) => return Err(e.into()),
    }
    guard.release().await?;
    ensure!(b.inspect(&name).await?.is_none(), "released, and inspect shows a holder");

    let fixed = a.named(&name).auto_renew(false).try_acquire().await?.expect_that("released, so free")?;
    let granted = stage.ttl().max(fixed.remaining());
    let started = Instant::now();
    while let Some(shown) = b.inspect(&name).await? {
        ensure!(started.elapsed() < granted + SLACK, "expired, and inspect shows {shown:?}");
        tokio::time::sleep(stage.ttl() / 20).await;
    }
    ensure!(!fixed.is_held(), "inspect shows nobody while the holder may believe");
    Ok(())
}

pub(crate) async fn wait_limit_is_one_deadline(stage: Stage) -> Outcome {
    let name = stage.name("lock");
    let (a, b, c) = (stage.client_called("holder-of-it").await?, stage.client().await?, stage.client().await?);
    let guard = take(&a, &name).await?;
    let limit = Duration::from_millis(500);
    // Others come and go meanwhile, which must not start the time anew.
    let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
    let (busy, crowd) = (c.named(&name), c.clone());
    let crowd = tokio::spawn(async move {
        while stopped.try_recv().is_err_and(|e| e == tokio::sync::oneshot::error::TryRecvError::Empty) {
            let _ = busy.clone().wait_at_most(Duration::from_millis(40)).acquire().await;
        }
        drained(&crowd).await
    });
    let started = Instant::now();
    let given_up = b.named(&name).wait_at_most(limit).acquire().await;
    let waited = started.elapsed();
    let _ = stop.send(());
    crowd.await??;
    let Err(e) = given_up else { return Err(crate::Failure::new("granted while another holds")) };
    ensure!(e.kind() == ErrorKind::Timeout, "waiting for a holder ended with {e}");
    ensure!(e.message().contains("holder-of-it") || e.message().contains("held"), "who is in the way? {e}");
    ensure!(waited >= limit && waited < limit + SLACK, "a wait of at most {limit:?} took {waited:?}");
    let kind = b.named(&name).wait_at_most(Duration::ZERO).acquire().await.err().map(|e| e.kind());
    ensure!(kind == Some(ErrorKind::Timeout), "waiting no time at all for a holder is {kind:?}");
    ensure!(guard.is_held(), "the holder lost the lock to waiters that gave up");
    drained(&b).await?;
    guard.release().await?;
    is_free(&b, &name).await
}

fn travels<T: Send + 'static>() {}
fn shared<T: Send + Sync + 'static>() {}
fn sends<F: Future + Send>(future: F) -> F {
    future
}

/// Mostly held up by the compiler; the rest is that a guard may be used elsewhere.
pub(crate) async fn guards_travel(stage: Stage) -> Outcome {
    shared::<LockClient>();
    shared::<LockGuard>();
    shared::<NamedLock>();
    shared::<LockMonitor>();
    travels::<Box<dyn DistributedLock>>();
    let name = stage.name("lock");
    let client = stage.client().await?;
    let guard = sends(client.acquire(&name)).await?;
    tokio::spawn(sends(async move { guard.release().await })).await??;
    let guard = sends(client.try_acquire(&name)).await?.expect_that("released, so free")?;
    let boxed: Box<dyn std::any::Any + Send> = Box::new(guard);
    drop(boxed);
    drained(&client).await?;
    let printed = format!("{:?}", stage.engine().await?);
    ensure!(!printed.is_empty(), "the engine has no Debug");
    is_free(&client, &name).await
}

pub(crate) async fn guarantees_hold_together(stage: Stage) -> Outcome {
    let (first, second) = (stage.engine().await?.guarantees(), stage.engine().await?.guarantees());
    ensure!(first == second, "two connections to one service promise different things: {first:?} and {second:?}");
    let level = first.level().expect_that("not even the lowest level is promised")?;
    first.require(level)?;
    stage.chose(format_args!("the level is {level}"), "it is what a program can require");
    Ok(())
}
