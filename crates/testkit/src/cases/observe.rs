//! What is told to those who ask, wait or look.

use crate::failure::{Expect, Outcome, ensure};
use crate::stage::{SLACK, Stage, drained, is_free, take};
use fencelock_core::{
    Capability, DistributedLock, ErrorKind, HolderInfo, LockClient, LockGuard, LockMonitor, NamedLock,
};
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
    ensure!(shown.waiting.is_empty(), "nobody waits, and inspect shows {:?}", shown.waiting);
    // Not every service knows how many wait; one that does knows that there is one.
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

/// Where there is a queue in the store, it is shown: who waits, in their order, and for how long.
pub(crate) async fn inspect_shows_who_waits(stage: Stage) -> Outcome {
    let name = stage.name("lock");
    let fifo = stage.promises(
        Capability::Fifo,
        "who waits is shown, in their order and since when",
        "nobody is shown who is not known to wait",
    );
    let asked = Instant::now();
    let (a, looks) = (stage.client_called("holds").await?, stage.client().await?);
    let guard = a.named(&name).note("first").try_acquire().await?.expect_that("a new name should be free")?;
    let (b, c) = (stage.client_called("waits б 注").await?, stage.client_called("waits too").await?);
    let second = tokio::spawn(b.named(&name).note("second é").wait_forever().acquire());
    until_waiting(&looks, &name, fifo.then_some(1)).await?;
    let third = tokio::spawn(c.named(&name).wait_forever().acquire());
    until_waiting(&looks, &name, fifo.then_some(2)).await?;
    let shown = looks.inspect(&name).await?.expect_that("held, and inspect shows nobody")?;
    let since = |shown: &HolderInfo| shown.held_for.or(shown.asked_ago);
    let who = |shown: &HolderInfo| -> Vec<_> {
        shown.waiting.iter().map(|waiter| (waiter.holder.to_string(), waiter.note.clone())).collect()
    };
    if fifo {
        let expected = [("waits б 注".to_owned(), Some("second é".into())), ("waits too".to_owned(), None)];
        ensure!(who(&shown) == expected, "those who wait are shown as {:?}", who(&shown));
        ensure!(since(&shown).is_some(), "since when it is held is not shown: {shown:?}");
        tokio::time::sleep(Duration::from_millis(150)).await;
        let later = looks.inspect(&name).await?.expect_that("held, and inspect shows nobody")?;
        ensure!(since(&later) >= since(&shown), "held for {:?}, then {:?}", since(&shown), since(&later));
        for (waiter, later) in shown.waiting.iter().zip(&later.waiting) {
            let (now, then) = (waiter.waited_for, later.waited_for);
            let (now, then) = now.zip(then).expect_that("since when somebody waits should be shown")?;
            ensure!(then >= now + Duration::from_millis(100), "waited for {now:?}, and 150 ms later for {then:?}");
            // Whole milliseconds, and a server's clock as it was last heard.
            ensure!(then < asked.elapsed() + Duration::from_millis(100), "waited for {then:?}, longer than the case");
        }
        let listed = looks.list(&name).await?;
        ensure!(listed.iter().map(|(_, shown)| who(shown)).eq([who(&shown)]), "the list shows {listed:?}");
    } else {
        let all_known = shown.waiters.is_some_and(|count| u64::try_from(shown.waiting.len()).is_ok_and(|n| n == count));
        ensure!(shown.waiting.is_empty() || all_known, "some are shown of {:?}: {:?}", shown.waiters, shown.waiting);
    }
    if let Some(since) = since(&shown) {
        ensure!(since < asked.elapsed() + Duration::from_millis(100), "held for {since:?}, longer than the case");
    }
    third.abort();
    let _ = third.await;
    drained(&c).await?;
    until_waiting(&looks, &name, fifo.then_some(1)).await?;
    guard.release().await?;
    let second = second.await??;
    let now = looks.inspect(&name).await?.expect_that("held, and inspect shows nobody")?;
    ensure!((&*now.holder, now.token) == ("waits б 注", second.token()), "the next holder is shown as {now:?}");
    ensure!(now.note.as_deref() == Some("second é") && now.waiting.is_empty(), "the next holder is shown as {now:?}");
    if let Some(first) = shown.waiting.first() {
        ensure!(first.claim == now.claim, "it waited as {:?}, and holds as {:?}", first.claim, now.claim);
    }
    second.release().await?;
    is_free(&looks, &name).await
}

/// Looks until so many are shown to wait; where that is not known, gives them the time to.
async fn until_waiting(client: &LockClient, name: &str, count: Option<u64>) -> Outcome {
    let Some(count) = count else {
        tokio::time::sleep(Duration::from_millis(50)).await;
        return Ok(());
    };
    let started = Instant::now();
    loop {
        let shown = client.inspect(name).await?.expect_that("held, and inspect shows nobody")?;
        if shown.waiters == Some(count) {
            let listed = u64::try_from(shown.waiting.len()).unwrap_or(u64::MAX);
            ensure!(listed == count, "{count} wait, and those shown are {:?}", shown.waiting);
            return Ok(());
        }
        ensure!(started.elapsed() < SLACK, "{count} should be shown to wait, and {:?} are", shown.waiters);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
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
