//! A lease that passes on within a client: tokens grow, others are served, nothing is left behind.

use super::contest::Contest;
use super::loss::told_why;
use crate::FencedFile;
use crate::failure::{Expect, Outcome, ensure};
use crate::stage::{SLACK, Stage, drained, granted, is_free, take, until, within};
use fencelock_core::{
    Admission, Capability, ErrorKind, FencingToken, LockClient, LockGuard, LockMonitor, LockName, Terms,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// How often a lease is passed on in vain before that is a failure: a loaded machine may take longer than it may.
const ATTEMPTS: u32 = 20;

/// A client whose leases pass on so often; `None` where that is not promised, and then refused.
async fn passing(stage: &Stage, most: u32) -> Outcome<Option<LockClient>> {
    let has = stage.promises(Capability::Cohort, "a lease passes on within a client", "a cohort is refused");
    let built = LockClient::builder(stage.engine().await?).defaults(stage.options().with_cohort(most)).build();
    if has {
        return Ok(Some(built?));
    }
    let kind = built.err().map(|e| e.kind());
    ensure!(kind == Some(ErrorKind::Refused), "a client with a cohort should be Refused, and is {kind:?}");
    let asked = stage.client().await?.named(&stage.name("refused")).cohort(most).try_acquire().await;
    let kind = asked.err().map(|e| e.kind());
    ensure!(kind == Some(ErrorKind::Refused), "a lock with a cohort should be Refused, and is {kind:?}");
    Ok(None)
}

/// The token that the service shows.
async fn shown(client: &LockClient, name: &str) -> Outcome<FencingToken> {
    Ok(client.inspect(name).await?.expect_that("held, and inspect shows nobody")?.token)
}

/// What was held before, and a hold under the same lease that was passed on by releasing or dropping it.
async fn passed_on(stage: &Stage, client: &LockClient, name: &str, drops: bool) -> Outcome<(LockMonitor, LockGuard)> {
    let other = stage.client().await?;
    for _ in 0..ATTEMPTS {
        // Both wait before the grant, after which little time is left for passing on.
        let held = other.acquire(name).await?;
        let first = tokio::spawn(client.acquire(name));
        tokio::time::sleep(Duration::from_millis(20)).await;
        let second = tokio::spawn(client.acquire(name));
        tokio::time::sleep(Duration::from_millis(20)).await;
        held.release().await?;
        let limit = stage.ttl() + SLACK;
        let first = within("the first waiter is served", limit, first).await???;
        let (before, at_first) = (first.monitor(), shown(client, name).await?);
        if drops {
            drop(first);
        } else {
            first.release().await?;
        }
        let second = within("the second waiter is served", limit, second).await???;
        ensure!(!before.is_held(), "two holders of one lease at once");
        let (old, new) = (before.token(), second.token());
        ensure!(new > old, "token {new} came after {old}");
        let at_second = shown(client, name).await?;
        ensure!(at_second >= new, "token {new} was given out, and the service has given {at_second} at most");
        if at_first == at_second {
            return Ok((before, second));
        }
        second.release().await?;
    }
    Err(crate::Failure::new(format!("{ATTEMPTS} times a local waiter went to the service for the lock")))
}

pub(crate) async fn a_lease_passes_on_within_a_client(stage: Stage) -> Outcome {
    let Some(client) = passing(&stage, 8).await? else { return Ok(()) };
    let (name, other) = (stage.name("lock"), stage.client().await?);
    let mut last = FencingToken::new(0);
    for drops in [false, true] {
        let (before, guard) = passed_on(&stage, &client, &name, drops).await?;
        ensure!(before.token() > last, "token {} came after {last}", before.token());
        ensure!(guard.evidence().iter().next().is_none(), "evidence that would hold for the holder before as well");
        ensure!(other.try_acquire(&name).await?.is_none(), "passed on, and another client was granted it");
        guard.release().await?;
        // The places of those to whom it was passed are given up in the background.
        drained(&client).await?;
        let next = take(&other, &name).await?;
        last = next.token();
        ensure!(last > before.token(), "token {last} came after a lease that had {}", before.token());
        next.release().await?;
    }
    drained(&client).await?;
    is_free(&other, &name).await
}

/// At the engine itself: what is reserved once is nobody else's, and is the same however often it is asked for.
pub(crate) async fn a_range_of_tokens_is_reserved_once(stage: Stage) -> Outcome {
    const RESERVE: u32 = 7;
    if passing(&stage, RESERVE).await?.is_none() {
        return Ok(());
    }
    let (name, engine) = (stage.name("lock"), stage.engine().await?);
    let mut last = 0;
    // The first grant of a name may be made another way than those after it.
    for round in 0..3 {
        let terms = Terms::new(LockName::new(&name)?, stage.ttl() * 10).with_holder("testkit").with_reserve(RESERVE);
        let claim = terms.mint()?;
        let grant = granted(engine.try_acquire(&claim).await)?;
        ensure!(grant.reserved == RESERVE, "{RESERVE} were to be reserved, and {} are", grant.reserved);
        ensure!(grant.token.get() > last, "round {round}: token {} came after {last}", grant.token);
        let again = granted(engine.try_acquire(&claim).await)?;
        let (one, two) = ((grant.token, grant.reserved), (again.token, again.reserved));
        ensure!(one == two, "asked again the range {one:?} became {two:?}");
        again.lease.release().await?;
        last = grant.token.get() + u64::from(RESERVE);
        let plain = stage.long_claim(&name)?;
        let grant = granted(engine.try_acquire(&plain).await)?;
        ensure!(grant.reserved == 0, "nothing was to be reserved, and {} are", grant.reserved);
        ensure!(
            grant.token.get() > last,
            "token {} was given out although all up to {last} were reserved",
            grant.token
        );
        last = grant.token.get();
        grant.lease.release().await?;
    }
    Ok(())
}

/// Two clients of four tasks each add to a number that only the lock protects.
pub(crate) async fn cohorts_exclude_each_other(stage: Stage) -> Outcome {
    let Some(a) = passing(&stage, 5).await? else { return Ok(()) };
    let Some(b) = passing(&stage, 100).await? else { return Ok(()) };
    let name = stage.name("counter");
    let contest = Arc::new(Contest::among(8));
    let mut tasks = JoinSet::new();
    for client in [&a, &b].into_iter().cycle().take(8) {
        let (lock, contest) = (client.named(&name).ttl(stage.long_ttl()), Arc::clone(&contest));
        tasks.spawn(async move {
            for turn in 0..25 {
                let guard = contest.turn(turn, &lock).await?;
                if turn % 3 == 0 {
                    drop(guard);
                } else {
                    guard.release().await?;
                }
            }
            Outcome::Ok(())
        });
    }
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    contest.came_to(200)?;
    drained(&a).await?;
    drained(&b).await?;
    is_free(&a, &name).await
}

/// Local waiters go on asking; another client is served all the same.
pub(crate) async fn others_are_served_between_cohorts(stage: Stage) -> Outcome {
    let Some(client) = passing(&stage, 8).await? else { return Ok(()) };
    let (name, other) = (stage.name("lock"), stage.client().await?);
    let (over, held) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let (client, name, over, held) = (client.clone(), name.clone(), Arc::clone(&over), Arc::clone(&held));
        tasks.spawn(async move {
            while !over.load(Ordering::SeqCst) {
                client.acquire(&name).await?.release().await?;
                held.fetch_add(1, Ordering::SeqCst);
            }
            Outcome::Ok(())
        });
    }
    let mut served = Outcome::Ok(());
    for _ in 0..3 {
        let before = held.load(Ordering::SeqCst);
        until("the cohort is served", stage.ttl() + SLACK, || held.load(Ordering::SeqCst) > before + 20).await?;
        let started = Instant::now();
        served = match within("another client is served", stage.ttl() + SLACK * 2, other.acquire(&name)).await {
            Ok(guard) => Ok(guard?.release().await?),
            Err(late) => Err(late),
        };
        if served.is_err() {
            break;
        }
        stage.chose(format_args!("served after {:?}", started.elapsed()), "the cohort gave way");
    }
    over.store(true, Ordering::SeqCst);
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    served?;
    drained(&client).await?;
    is_free(&other, &name).await
}

pub(crate) async fn a_cohort_cancelled_at_random_instants(stage: Stage) -> Outcome {
    let Some(client) = passing(&stage, 8).await? else { return Ok(()) };
    let (name, other) = (stage.name("lock"), stage.client().await?);
    let mut last = FencingToken::new(0);
    for round in 0..60 {
        let guard = take(&client, &name).await?;
        let mut waits = JoinSet::new();
        for _ in 0..3 {
            let (lock, cut) = (client.named(&name), Duration::from_micros(fastrand::u64(0..4_000)));
            waits.spawn(async move {
                // A thread's sleep: the runtime's timers round to whole milliseconds.
                let cut = tokio::task::spawn_blocking(move || std::thread::sleep(cut));
                tokio::select! {
                    guard = lock.acquire() => Some(guard),
                    _ = cut => None,
                }
            });
        }
        tokio::time::sleep(Duration::from_micros(fastrand::u64(0..3_000))).await;
        let mut newest = guard.token();
        guard.release().await?;
        while let Some(waited) = waits.join_next().await {
            if let Some(guard) = waited?.transpose()? {
                newest = newest.max(guard.token());
                if round % 2 == 0 {
                    guard.release().await?;
                }
            }
        }
        ensure!(newest > last, "token {newest} came after {last}");
        drained(&client).await?;
        let next = take(&other, &name).await?;
        ensure!(next.token() > newest, "token {} came after {newest}", next.token());
        last = next.token();
        next.release().await?;
    }
    Ok(())
}

pub(crate) async fn a_lease_that_passed_on_is_kept_and_its_loss_told(stage: Stage) -> Outcome {
    let Some(client) = passing(&stage, 8).await? else { return Ok(()) };
    let (name, other) = (stage.name("lock"), stage.client().await?);
    let (_, mut guard) = passed_on(&stage, &client, &name, false).await?;
    let started = Instant::now();
    while started.elapsed() < stage.ttl() * 2 {
        tokio::time::sleep(stage.ttl() / 10).await;
        ensure!(guard.is_held(), "passed on, and lost after {:?}", started.elapsed());
        ensure!(other.try_acquire(&name).await?.is_none(), "passed on, and not renewed");
    }
    let mut attempt = 1;
    loop {
        stage.seize(&name).await?;
        let reason = within("the loss is told", stage.ttl() + SLACK, guard.lost()).await?;
        if told_why(reason, attempt)? {
            break;
        }
        attempt += 1;
        (_, guard) = passed_on(&stage, &client, &name, false).await?;
    }
    let kind = guard.release().await.err().map(|e| e.kind());
    ensure!(kind == Some(ErrorKind::Lost), "releasing after a loss should be Lost, and is {kind:?}");
    is_free(&other, &name).await
}

pub(crate) async fn the_holder_before_is_stale_once_the_next_has_entered(stage: Stage) -> Outcome {
    let Some(client) = passing(&stage, 8).await? else { return Ok(()) };
    let (name, dir) = (stage.name("lock"), tempfile::tempdir()?);
    let file = FencedFile::at(dir.path().join("value"));
    let (before, guard) = passed_on(&stage, &client, &name, false).await?;
    // As if it had entered while it held, and was then delayed.
    let old = file.enter(before.token())?.admitted()?;
    let new = file.enter(guard.token())?.admitted()?;
    let Admission::Stale(stale) = old.write("late")? else {
        return Err(crate::Failure::new("the late write of the holder before was accepted"));
    };
    ensure!(stale.newest == guard.token(), "refused because of {}", stale.newest);
    new.write("new")?.admitted()?;
    Ok(guard.release().await?)
}
