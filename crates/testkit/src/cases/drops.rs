//! Guards that are dropped, wherever and whenever.

use crate::failure::{Expect, Failure, Outcome, ensure};
use crate::stage::{SLACK, Stage, drained, is_free, take, within};
use fencelock_core::{ErrorKind, LockGuard};
use std::sync::Arc;

pub(crate) async fn drop_frees(stage: Stage) -> Outcome {
    let name = stage.name("lock");
    let (a, b) = (stage.client().await?, stage.client().await?);
    for _ in 0..3 {
        let guard = take(&a, &name).await?;
        let monitor = guard.monitor();
        drop(guard);
        ensure!(!monitor.is_held(), "dropped, and held");
        drained(&a).await?;
        is_free(&b, &name).await?;
    }
    // Once more after renewal has begun, with the last handle to the client gone too.
    let guard = take(&a, &name).await?;
    tokio::time::sleep(stage.ttl() / 2).await;
    drop(a);
    drop(guard);
    within("a dropped guard frees", SLACK, b.acquire(&name)).await??.release().await?;
    Ok(())
}

pub(crate) async fn drop_off_the_runtime_frees(stage: Stage) -> Outcome {
    let name = stage.name("lock");
    let (a, b) = (stage.client().await?, stage.client().await?);
    let guard = take(&a, &name).await?;
    on_a_thread(move || {
        drop(guard);
        Ok(())
    })
    .await?;
    drained(&a).await?;
    is_free(&b, &name).await
}

pub(crate) async fn guard_outlives_its_runtime(stage: Stage) -> Outcome {
    let stage = Arc::new(stage);
    let (lost, dropped) = (stage.name("lost"), stage.name("dropped"));
    let (there, names) = (Arc::clone(&stage), [lost.clone(), dropped.clone()]);
    let (guard, other) = on_a_thread(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let [lost, dropped] = names;
        let guards: Outcome<(LockGuard, LockGuard)> = runtime.block_on(async {
            let client = there.client().await?;
            Ok((take(&client, &lost).await?, take(&client, &dropped).await?))
        });
        drop(runtime);
        guards
    })
    .await?;
    on_a_thread(move || {
        drop(other);
        Ok(())
    })
    .await?;
    within("lost() ends when the runtime is gone", stage.ttl() + SLACK, guard.lost()).await?;
    ensure!(!guard.is_held(), "nobody renews any more, and it is held");
    let kind = guard.release().await.err().map(|e| e.kind());
    ensure!(kind == Some(ErrorKind::Lost), "releasing without the runtime is {kind:?}");
    let client = stage.client().await?;
    for name in [lost, dropped] {
        let next = within("the lease runs out", stage.ttl() + SLACK * 2, client.acquire(&name)).await??;
        next.release().await?;
    }
    Ok(())
}

pub(crate) async fn close_drains(stage: Stage) -> Outcome {
    let name = stage.name("lock");
    let (a, b) = (stage.client().await?, stage.client().await?);
    drop(take(&a, &name).await?);
    within("close ends", SLACK, a.close()).await?;
    ensure!(a.pending() == 0, "closed with {} pending", a.pending());
    is_free(&b, &name).await?;
    let kind = a.acquire(&name).await.err().map(|e| e.kind());
    ensure!(kind == Some(ErrorKind::Unavailable), "acquiring from a closed client is {kind:?}");
    is_free(&b, &name).await
}

/// Runs on a plain thread, outside any runtime.
pub(super) async fn on_a_thread<T: Send + 'static>(work: impl FnOnce() -> Outcome<T> + Send + 'static) -> Outcome<T> {
    let (done, answer) = tokio::sync::oneshot::channel();
    let thread = std::thread::Builder::new().spawn(move || {
        let _ = done.send(work());
    })?;
    match answer.await {
        Ok(outcome) => outcome,
        Err(_) => {
            let panicked = thread.join().err().and_then(|e| e.downcast_ref::<&str>().map(|said| (*said).to_owned()));
            Err(Failure::new(panicked.unwrap_or_default())).expect_that("panicked on a thread of its own")
        }
    }
}
