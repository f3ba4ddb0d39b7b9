//! What arrives late, twice or not at all takes no lock that nobody holds.

mod common;

use common::{World, drained, ms};
use fencelock_core::memory::{Delivery, MemoryLock, Operation};
use fencelock_core::{Attempt, DistributedLock, ErrorKind, LockName, Terms};

#[tokio::test(start_paused = true)]
async fn a_late_acquire_after_its_undo_leaves_no_lock() {
    let w = World::new();
    let client = w.client("a");
    w.server.inject(Operation::Acquire, Delivery::Late(ms(5_000)));
    let e = client.try_acquire("x").await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable);
    drained(&client).await;
    let guard = w.client("b").named("x").ttl(ms(1_000)).try_acquire().await.unwrap().expect("nothing was left");
    tokio::time::sleep(ms(6_000)).await;
    guard.release().await.unwrap();
    assert_eq!(w.server.entries(), 0);
    assert!(client.try_acquire("x").await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_is_undone() {
    let w = World::new();
    let client = w.client("a");
    w.server.inject(Operation::Acquire, Delivery::ReplyLost);
    assert_eq!(client.try_acquire("x").await.unwrap_err().kind(), ErrorKind::Unavailable);
    drained(&client).await;
    assert_eq!(w.server.entries(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_asks_again_after_a_lost_reply_and_holds_once() {
    let w = World::new();
    w.server.inject(Operation::Acquire, Delivery::ReplyLost);
    let guard = w.client("a").acquire("x").await.unwrap();
    assert_eq!(w.client("b").inspect("x").await.unwrap().unwrap().token, guard.token());
    guard.release().await.unwrap();
    assert_eq!(w.server.entries(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_after_the_release_takes_nothing() {
    let w = World::new();
    let client = w.client("a");
    w.server.inject(Operation::Acquire, Delivery::Twice(ms(1_000)));
    client.acquire("x").await.unwrap().release().await.unwrap();
    let other = w.client("b").acquire("x").await.unwrap();
    other.release().await.unwrap();
    tokio::time::sleep(ms(2_000)).await;
    assert_eq!(w.server.entries(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_duplicated_release_frees_nobody_elses_lock() {
    let w = World::new();
    w.server.inject(Operation::Release, Delivery::Twice(ms(1_000)));
    w.client("a").acquire("x").await.unwrap().release().await.unwrap();
    let client = w.client("b");
    let other = client.acquire("x").await.unwrap();
    tokio::time::sleep(ms(2_000)).await;
    assert!(w.client("c").try_acquire("x").await.unwrap().is_none());
    other.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_release_is_retried_and_says_so() {
    let w = World::new();
    let client = w.client("a");
    let guard = client.acquire("x").await.unwrap();
    w.server.set_hung(true);
    let e = guard.release().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable);
    assert!(e.to_string().contains("background"), "{e}");
    w.server.set_down(true);
    w.server.set_hung(false);
    tokio::time::sleep(ms(3_000)).await;
    w.server.set_down(false);
    drained(&client).await;
    assert!(w.client("b").try_acquire("x").await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn an_undo_ends_when_the_lease_must_have_ended() {
    let w = World::new();
    let client = w.client("a");
    let guard = client.named("x").ttl(ms(2_000)).acquire().await.unwrap();
    w.server.set_down(true);
    drop(guard);
    tokio::time::timeout(ms(30_000), client.close()).await.expect("not for ever");
    assert_eq!(client.try_acquire("x").await.unwrap_err().kind(), ErrorKind::Unavailable, "closed");
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_comes_nearly_expired_is_not_handed_out() {
    let w = World::new();
    let engine = std::sync::Arc::new(MemoryLock::on(&w.server).with_request_limit(ms(5_000)));
    let client = fencelock_core::LockClient::builder(engine).clock(w.clock.clock()).build().unwrap();
    w.server.inject(Operation::Acquire, Delivery::Late(ms(950)));
    let guard = client.named("x").ttl(ms(1_000)).acquire().await.unwrap();
    assert!(guard.remaining() > ms(900), "{:?}", guard.remaining());
    assert_eq!(guard.token().get(), 2, "the first grant was undone, the second handed out");
    guard.release().await.unwrap();
    for _ in 0..3 {
        w.server.inject(Operation::Acquire, Delivery::Late(ms(950)));
    }
    let e = client.named("x").ttl(ms(1_000)).try_acquire().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    drained(&client).await;
    assert_eq!(w.server.entries(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_undo_goes_on_for_as_long_as_an_extension_may_last() {
    let w = World::new();
    let client = w.client("a");
    let guard = client.named("x").ttl(ms(1_000)).auto_renew(false).acquire().await.unwrap();
    guard.extend(ms(24 * 3_600_000)).await.unwrap();
    w.server.set_down(true);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Unavailable);
    tokio::time::sleep(ms(3_600_000)).await;
    assert_eq!(client.pending(), 1);
    w.server.set_down(false);
    drained(&client).await;
    assert_eq!(w.server.entries(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_try_meets_no_trace_of_its_own() {
    let w = World::new();
    let engine = std::sync::Arc::new(MemoryLock::on(&w.server).with_request_limit(ms(5_000)));
    let client = fencelock_core::LockClient::builder(engine).clock(w.clock.clock()).build().unwrap();
    w.server.inject(Operation::Acquire, Delivery::Late(ms(950)));
    let guard = client.named("x").ttl(ms(1_000)).try_acquire().await.unwrap();
    assert!(guard.expect("nobody else was there").is_held());
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_is_remembered_past_many_releases() {
    let w = World::new();
    let client = w.client("a");
    w.server.inject(Operation::Acquire, Delivery::Twice(ms(1_000)));
    client.acquire("x").await.unwrap().release().await.unwrap();
    for _ in 0..5_000 {
        client.acquire("y").await.unwrap().release().await.unwrap();
    }
    tokio::time::sleep(ms(2_000)).await;
    assert_eq!(w.server.entries(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_same_id_means_the_same() {
    let w = World::new();
    let engine = MemoryLock::on(&w.server);
    let claim = Terms::new(LockName::new("x").unwrap(), ms(1_000)).with_clock(w.clock.clock()).mint().unwrap();
    let Attempt::Granted(first) = engine.try_acquire(&claim).await.unwrap() else { panic!("free") };
    tokio::time::sleep(ms(800)).await;
    let Attempt::Granted(second) = engine.try_acquire(&claim).await.unwrap() else { panic!("ours") };
    assert_eq!(first.token, second.token);
    tokio::time::sleep(ms(800)).await;
    assert!(engine.inspect(claim.name()).await.unwrap().is_some(), "its expiry was counted anew");
    tokio::time::sleep(ms(300)).await;
    assert_eq!(engine.try_acquire(&claim).await.unwrap_err().kind(), ErrorKind::Lost, "expired: the id is dead");
}
