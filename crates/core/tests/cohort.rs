//! Passing on within a client: bounded, under one lease, with tokens that grow.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what it expects by panicking")]

mod common;

use common::{World, drained, ms};
use fencelock_core::memory::{MemoryGate, MemoryLock};
use fencelock_core::{AcquireOptions, ErrorKind, Gate, LockClient, LockGuard, LossReason, NamedLock};
use std::sync::{Arc, Mutex};
use tokio::task::JoinHandle;

fn cohort(world: &World, holder: &str, most: u32) -> LockClient {
    let engine = Arc::new(MemoryLock::on(&world.server).with_request_limit(ms(200)));
    let defaults = AcquireOptions::default().with_cohort(most);
    LockClient::builder(engine).clock(world.clock.clock()).holder(holder).defaults(defaults).build().unwrap()
}

/// Waits in a task, which has its place when this returns.
async fn waits(lock: NamedLock) -> JoinHandle<LockGuard> {
    let task = tokio::spawn(async move { lock.wait_forever().acquire().await.unwrap() });
    tokio::time::sleep(ms(1)).await;
    task
}

/// Bounded, so that nobody waits for ever for what is not passed on.
async fn soon(waiter: JoinHandle<LockGuard>) -> LockGuard {
    tokio::time::timeout(ms(60_000), waiter).await.expect("served in time").unwrap()
}

async fn server_claim(client: &LockClient) -> fencelock_core::ClaimId {
    client.inspect("x").await.unwrap().unwrap().claim.unwrap()
}

#[tokio::test(start_paused = true)]
async fn one_lease_serves_the_first_and_so_many_more() {
    let w = World::new();
    let client = cohort(&w, "a", 3);
    let mut guard = client.acquire("x").await.unwrap();
    let mut waiting = Vec::new();
    for _ in 0..7 {
        waiting.push(waits(client.named("x")).await);
    }
    let mut seen = vec![(server_claim(&client).await, guard.claim_id(), guard.token().get())];
    for next in waiting {
        let before = guard.monitor();
        guard.release().await.unwrap();
        guard = soon(next).await;
        assert!(!before.is_held() && guard.is_held());
        seen.push((server_claim(&client).await, guard.claim_id(), guard.token().get()));
    }
    let tokens: Vec<_> = seen.iter().map(|(.., token)| *token).collect();
    assert_eq!(tokens, [1, 2, 3, 4, 5, 6, 7, 8], "each grant reserves three, and uses them up");
    let shown: Vec<_> = seen.iter().map(|(server, ..)| *server).collect();
    assert!(shown[..4].iter().all(|id| *id == seen[0].1), "the server sees the first holder");
    assert!(shown[4..].iter().all(|id| *id == seen[4].1) && shown[3] != shown[4]);
    let own: std::collections::BTreeSet<_> = seen.iter().map(|(_, own, _)| *own).collect();
    assert_eq!(own.len(), 8, "each holder has a claim of its own");
    guard.release().await.unwrap();
    drained(&client).await;
    assert_eq!(w.server.entries(), 0);
}

#[tokio::test(start_paused = true)]
async fn nothing_passes_on_unless_asked_for() {
    let w = World::new();
    let client = w.client("a");
    let guard = client.acquire("x").await.unwrap();
    let next = waits(client.named("x")).await;
    guard.release().await.unwrap();
    let guard = soon(next).await;
    assert_eq!((guard.token().get(), server_claim(&client).await), (2, guard.claim_id()));
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn others_are_served_after_so_many_passes_or_so_much_time() {
    let w = World::new();
    let (client, other) = (cohort(&w, "a", 2), w.client("b"));
    for too_late in [false, true] {
        let guard = client.acquire("x").await.unwrap();
        let first = guard.token().get();
        let theirs = waits(other.named("x")).await;
        let ours = [waits(client.named("x")).await, waits(client.named("x")).await, waits(client.named("x")).await];
        if too_late {
            tokio::time::sleep(ms(50)).await;
            guard.release().await.unwrap();
        } else {
            guard.release().await.unwrap();
            let [one, two, three] = ours;
            soon(one).await.release().await.unwrap();
            let last = soon(two).await;
            assert_eq!(last.token().get(), first + 2);
            assert!(!theirs.is_finished());
            last.release().await.unwrap();
            three.abort();
        }
        let theirs = soon(theirs).await;
        assert_eq!(theirs.token().get(), first + 3, "what was reserved is not given out again");
        drained(&client).await;
        theirs.release().await.unwrap();
        drained(&client).await;
    }
}

#[tokio::test(start_paused = true)]
async fn it_passes_on_no_more_often_than_the_grant_has_tokens_for() {
    let w = World::new();
    let client = cohort(&w, "a", 5);
    let guard = client.named("x").cohort(1).acquire().await.unwrap();
    let (one, two) = (waits(client.named("x")).await, waits(client.named("x")).await);
    guard.release().await.unwrap();
    let guard = soon(one).await;
    let before = (guard.token().get(), server_claim(&client).await);
    guard.release().await.unwrap();
    let guard = soon(two).await;
    assert!(before.0 == 2 && guard.token().get() == 3 && server_claim(&client).await != before.1);
    // And to each waiter no later than it asked for.
    let (one, two) = (waits(client.named("x")).await, waits(client.named("x").cohort(1)).await);
    let three = waits(client.named("x")).await;
    guard.release().await.unwrap();
    soon(one).await.release().await.unwrap();
    let guard = soon(three).await;
    assert!(guard.token().get() == 5 && !two.is_finished());
    guard.release().await.unwrap();
    soon(two).await.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_dropped_guard_passes_on_and_no_deadline_moves() {
    let w = World::new();
    let client = cohort(&w, "a", 5);
    let guard = client.acquire("x").await.unwrap();
    let next = waits(client.named("x").max_hold(ms(40_000))).await;
    tokio::time::sleep(ms(40)).await;
    let (until, server) = (guard.monitor().deadline().unwrap(), server_claim(&client).await);
    drop(guard);
    let guard = soon(next).await;
    assert_eq!(server_claim(&client).await, server);
    assert_eq!(guard.monitor().deadline().unwrap(), until, "nothing was acknowledged meanwhile");
    assert_eq!(guard.evidence(), fencelock_core::Evidence::none());
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_passed_on_is_renewed_and_lost_as_any_other() {
    let w = World::new();
    let client = cohort(&w, "a", 5);
    let lock = client.named("x").ttl(ms(900));
    let guard = lock.acquire().await.unwrap();
    let next = waits(lock.clone()).await;
    guard.release().await.unwrap();
    let guard = soon(next).await;
    for _ in 0..40 {
        tokio::time::sleep(ms(100)).await;
        assert!(guard.is_held());
    }
    assert!(w.server.expire(guard.name()));
    let told = tokio::spawn({
        let monitor = guard.monitor();
        async move { monitor.lost().await }
    });
    for _ in 0..10 {
        tokio::time::sleep(ms(100)).await;
    }
    assert_eq!(tokio::time::timeout(ms(60_000), told).await.expect("told in time").unwrap(), LossReason::Revoked);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test(start_paused = true)]
async fn whoever_goes_in_the_instant_passes_it_on() {
    let w = World::new();
    let (client, other) = (cohort(&w, "a", 5), w.client("b"));
    let guard = client.acquire("x").await.unwrap();
    let (gone, next) = (waits(client.named("x")).await, waits(client.named("x")).await);
    // Handed over in this step; the task that waits has not run yet.
    guard.release().await.unwrap();
    gone.abort();
    let guard = soon(next).await;
    assert!(guard.token().get() == 3 && guard.is_held(), "{guard:?}");
    let gone = waits(client.named("x")).await;
    guard.release().await.unwrap();
    gone.abort();
    tokio::time::sleep(ms(1)).await;
    drained(&client).await;
    let theirs = other.try_acquire("x").await.unwrap().expect("nobody came for it, and it went back");
    theirs.release().await.unwrap();
    assert_eq!(w.server.entries(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_its_caller_does_not_take_is_the_next_ones() {
    let w = World::new();
    let client = cohort(&w, "a", 5);
    let guard = client.acquire("x").await.unwrap();
    let mut neglected = Box::pin(client.named("x").wait_forever().acquire());
    assert!(futures_poll(&mut neglected).await.is_none());
    let next = waits(client.named("x")).await;
    guard.release().await.unwrap();
    tokio::time::sleep(ms(1)).await;
    drop(neglected);
    let guard = soon(next).await;
    assert_eq!(guard.token().get(), 3);
    // And once more, where nobody is next.
    let mut neglected = Box::pin(client.named("x").wait_forever().acquire());
    assert!(futures_poll(&mut neglected).await.is_none());
    tokio::time::sleep(ms(1)).await;
    guard.release().await.unwrap();
    tokio::time::sleep(ms(1)).await;
    drop(neglected);
    tokio::time::sleep(ms(1)).await;
    drained(&client).await;
    assert_eq!(w.server.entries(), 0);
}

async fn futures_poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|cx| match std::pin::Pin::new(&mut *future).poll(cx) {
        std::task::Poll::Ready(output) => std::task::Poll::Ready(Some(output)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn it_passes_to_those_alone_whom_it_fits() {
    let w = World::new();
    let client = cohort(&w, "a", 5);
    let guard = client.named("x").note("n").acquire().await.unwrap();
    let server = server_claim(&client).await;
    let others = [
        waits(client.named("x").note("n").ttl(ms(20_000))).await,
        waits(client.named("x").note("m")).await,
        waits(client.named("x").note("n").lock_delay(ms(1_000))).await,
        waits(client.named("x").note("n").auto_renew(false)).await,
        waits(client.named("x").note("n").cohort(0)).await,
    ];
    let fits = waits(client.named("x").note("n").max_hold(ms(9_000)).cohort(1)).await;
    guard.release().await.unwrap();
    let guard = soon(fits).await;
    assert_eq!((server_claim(&client).await, guard.token().get()), (server, 2));
    assert!(others.iter().all(|waiter| !waiter.is_finished()));
    guard.release().await.unwrap();
    for other in others {
        let guard = soon(other).await;
        assert_eq!(server_claim(&client).await, guard.claim_id());
        guard.release().await.unwrap();
    }
    let fixed = client.named("x").auto_renew(false).acquire().await.unwrap();
    let (token, next) = (fixed.token().get(), waits(client.named("x").auto_renew(false)).await);
    fixed.release().await.unwrap();
    assert_eq!(soon(next).await.token().get(), token + 1, "a fixed lease reserves nothing");
}

#[tokio::test(start_paused = true)]
async fn a_gate_takes_the_holder_before_for_stale() {
    let w = World::new();
    let client = cohort(&w, "a", 5);
    let gate = MemoryGate::<Vec<u64>>::new();
    let guard = client.acquire("x").await.unwrap();
    let old = gate.enter((), "x", guard.token()).await.unwrap().admitted().unwrap();
    let next = waits(client.named("x")).await;
    guard.release().await.unwrap();
    let guard = soon(next).await;
    let new = gate.enter((), "x", guard.token()).await.unwrap().admitted().unwrap();
    assert!(old.apply(|v| v.push(1)).is_stale() && !new.apply(|v| v.push(2)).is_stale());
}

#[tokio::test(start_paused = true)]
async fn nothing_passes_on_in_a_client_that_closes() {
    let w = World::new();
    let client = cohort(&w, "a", 5);
    let guard = client.acquire("x").await.unwrap();
    let ended = Arc::new(Mutex::new(None));
    let waiter = tokio::spawn({
        let (lock, ended) = (client.named("x").wait_forever(), Arc::clone(&ended));
        async move { *ended.lock().unwrap() = lock.acquire().await.err().map(|e| e.kind()) }
    });
    tokio::time::sleep(ms(1)).await;
    client.close().await;
    guard.release().await.unwrap();
    waiter.await.unwrap();
    assert_eq!(*ended.lock().unwrap(), Some(ErrorKind::Unavailable));
    assert_eq!(w.server.entries(), 0);
}

#[tokio::test(start_paused = true)]
async fn closing_waits_for_what_is_on_its_way_to_a_waiter() {
    let w = World::new();
    let client = cohort(&w, "a", 5);
    let guard = client.acquire("x").await.unwrap();
    let waiter = tokio::spawn(client.named("x").wait_forever().acquire());
    tokio::time::sleep(ms(1)).await;
    // Handed over in this step; the task that waits has not run yet.
    guard.release().await.unwrap();
    client.close().await;
    assert_eq!(w.server.entries(), 0);
    assert_eq!(waiter.await.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
}

/// As any holder, the next one hears of it by a renewal; its token is that of a holder from before.
#[tokio::test(start_paused = true)]
async fn what_was_taken_away_unheard_may_pass_on_once_more_and_a_gate_refuses_it() {
    let w = World::new();
    let (client, other) = (cohort(&w, "a", 5), w.client("b"));
    let gate = MemoryGate::<Vec<u64>>::new();
    let guard = client.acquire("x").await.unwrap();
    let theirs = waits(other.named("x")).await;
    let ours = waits(client.named("x")).await;
    assert!(client.force_release("x").await.unwrap());
    let theirs = soon(theirs).await;
    assert!(!gate.enter((), "x", theirs.token()).await.unwrap().is_stale());
    guard.release().await.unwrap();
    let ours = soon(ours).await;
    assert!(ours.token() < theirs.token());
    assert!(gate.enter((), "x", ours.token()).await.unwrap().is_stale());
    let lost = tokio::time::timeout(ms(10_100), ours.lost()).await;
    assert_eq!(lost.expect("by the first renewal, a third of the ttl after the grant"), LossReason::Revoked);
    assert!(theirs.is_held());
    assert_eq!(ours.release().await.unwrap_err().kind(), ErrorKind::Lost);
    theirs.release().await.unwrap();
    drained(&client).await;
    assert_eq!(w.server.entries(), 0);
}
