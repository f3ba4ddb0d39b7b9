//! Several names at once: all or nothing.

use super::cancel::{cut, some_time};
use crate::failure::{Expect, Outcome, ensure};
use crate::stage::{SLACK, Stage, drained, is_free, is_taken, take, within};
use fencelock_core::{ErrorKind, LockName};
use std::time::{Duration, Instant};

fn names<const N: usize>(stage: &Stage, what: [&str; N]) -> [String; N] {
    what.map(|what| stage.name(what))
}

pub(crate) async fn several_names_are_all_or_nothing(stage: Stage) -> Outcome {
    let [a, b, c] = names(&stage, ["a", "b", "c"]);
    let (client, other) = (stage.client().await?, stage.client().await?);
    let all = client.all([&c, &a, &b, &a]).acquire().await?;
    let sorted: Vec<_> = all.names().map(LockName::as_str).collect();
    ensure!(sorted == [&a, &b, &c], "three names, one of them twice, are {sorted:?}");
    ensure!(all.is_held() && all.tokens().count() == 3, "all are held: {all:?}");
    for name in [&a, &b, &c] {
        let shown = other.inspect(name).await?.expect_that("held, and inspect shows nobody")?;
        ensure!(Some(shown.token) == all.token(name), "{name} has the token {}, and {all:?}", shown.token);
        is_taken(&other, name).await?;
    }
    all.release().await?;
    for name in [&a, &b, &c] {
        is_free(&other, name).await?;
    }

    let held = take(&other, &b).await?;
    ensure!(client.all([&a, &b, &c]).try_acquire().await?.is_none(), "all, although one is another's");
    for name in [&a, &c] {
        is_free(&other, name).await?;
    }
    let started = Instant::now();
    let limit = Duration::from_millis(300);
    let kind = client.all([&a, &b, &c]).wait_at_most(limit).acquire().await.err().map(|e| e.kind());
    let waited = started.elapsed();
    ensure!(kind == Some(ErrorKind::Timeout), "a wait for all, one of which is another's: {kind:?}");
    ensure!(waited >= limit && waited < limit + SLACK, "it waited {waited:?} instead of {limit:?}");
    drained(&client).await?;
    for name in [&a, &c] {
        is_free(&other, name).await?;
    }
    Ok(held.release().await?)
}

pub(crate) async fn losing_one_of_several_loses_all(stage: Stage) -> Outcome {
    let [a, b] = names(&stage, ["a", "b"]);
    let (client, other) = (stage.client().await?, stage.client().await?);
    let all = client.all([&a, &b]).acquire().await?;
    let monitor = all.monitor();
    stage.seize(&b).await?;
    within("the loss is told", stage.ttl() + SLACK, all.lost()).await?;
    ensure!(!all.is_held(), "one is lost, and all are held");
    let both = || monitor.parts().all(|part| !part.is_held());
    crate::stage::until("the other is lost with it", SLACK, both).await?;
    let kind = all.release().await.err().map(|e| e.kind());
    ensure!(kind == Some(ErrorKind::Lost), "released after the loss of one: {kind:?}");
    // Lost and not released: it runs out, or is deleted where nothing runs out.
    for name in [&a, &b] {
        let next = within("the next holder", stage.ttl() * 2 + SLACK, other.acquire(name)).await??;
        next.release().await?;
    }
    Ok(())
}

pub(crate) async fn several_names_in_any_order_never_deadlock(stage: Stage) -> Outcome {
    let [a, b, c] = names(&stage, ["a", "b", "c"]);
    let orders = [[a.clone(), b.clone(), c.clone()], [c.clone(), a.clone(), b.clone()], [b, c, a]];
    let mut contenders = Vec::new();
    for order in orders {
        contenders.push((stage.client().await?, order));
    }
    let begin = std::sync::Arc::new(tokio::sync::Barrier::new(contenders.len()));
    let mut workers = tokio::task::JoinSet::new();
    for (client, order) in contenders {
        let begin = std::sync::Arc::clone(&begin);
        workers.spawn(async move {
            begin.wait().await;
            for _ in 0..4 {
                let all = client.all(&order).acquire().await?;
                tokio::time::sleep(Duration::from_millis(2)).await;
                ensure!(all.is_held(), "lost in two milliseconds");
                all.release().await?;
            }
            Outcome::Ok(())
        });
    }
    let work = async {
        while let Some(done) = workers.join_next().await {
            done??;
        }
        Outcome::Ok(())
    };
    within("three workers with the same names", SLACK * 6, work).await?
}

pub(crate) async fn several_cancelled_at_random_instants(stage: Stage) -> Outcome {
    let [a, b, c] = names(&stage, ["a", "b", "c"]);
    let (client, rival, other) = (stage.client().await?, stage.client().await?, stage.client().await?);
    for round in 0..60 {
        let limit = || some_time(round, Duration::from_millis(15));
        let cycle = async |client: &fencelock_core::LockClient, order: [&String; 3]| {
            client.all(order).acquire().await?.release().await?;
            Outcome::Ok(())
        };
        let one = cut(limit(), cycle(&client, [&a, &b, &c]));
        let two = cut(limit(), cycle(&rival, [&c, &b, &a]));
        let (one, two) = tokio::join!(one, two);
        for ended in [one, two].into_iter().flatten() {
            ended?;
        }
        if round % 4 == 0 {
            drained(&client).await?;
            drained(&rival).await?;
            let all = other.all([&a, &b, &c]).try_acquire().await?;
            all.expect_that("what was cancelled should be free at once, and is not")?.release().await?;
        }
    }
    drained(&client).await?;
    drained(&rival).await?;
    for name in [&a, &b, &c] {
        is_free(&other, name).await?;
    }
    Ok(())
}
