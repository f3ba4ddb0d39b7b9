//! Sessions that end, and what was under way in them.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, missing_docs, reason = "a test")]

mod common;

use common::{SLACK, client, engine, in_line, nodes, raw, until, within};
use fencelock_core::{AcquireOptions, DistributedLock, ErrorKind, LockClient, LockName, LossReason, Terms, Wait};
use fencelock_lab::{Ensemble, Mood, Proxy, ZooKeeper, ZooKeeperSettings};
use fencelock_zookeeper::ZooKeeperLock;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// Runs on a thread without a runtime, as dropping one must.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

fn on(engine: Arc<dyn DistributedLock>) -> LockClient {
    let options =
        AcquireOptions::default().with_ttl(Duration::from_secs(4)).with_wait(Wait::AtMost(Duration::from_secs(30)));
    LockClient::builder(engine).defaults(options).build().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_ends_with_the_runtime_that_it_was_opened_on() {
    let server = ZooKeeper::start().unwrap();
    let url = format!("zookeeper://{}?session=4s&request_timeout=1s", server.address());
    let there = runtime();
    let engine = {
        let url = url.clone();
        there.spawn(async move { engine(&url).await.unwrap() }).await.unwrap()
    };
    let (here, other) = (on(Arc::<ZooKeeperLock>::clone(&engine)), client(&url).await);
    let guard = here.acquire("moved").await.unwrap();
    let raw = raw(&server.address().to_string()).await;
    let waiting = in_line(&raw, &here, "elsewhere");
    let kept = other.acquire("elsewhere").await.unwrap();
    let waiting = waiting.await;
    aside(move || drop(there)).await;
    let gone = Instant::now();
    let reason = within("the loss is told", SLACK, guard.lost()).await;
    assert_eq!(reason, LossReason::SessionEnded, "{:?} after the runtime was gone", gone.elapsed());
    // The lock of the session that ended is free when the server has ended it too.
    let again = within("later claims have another session", SLACK, here.acquire("moved")).await.unwrap();
    assert!(again.token() > guard.token());
    assert!(
        within("kept alive", SLACK, async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            again.is_held()
        })
        .await
    );
    kept.release().await.unwrap();
    within("the waiter has a place in the new session", SLACK, waiting)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
    again.release().await.unwrap();
    within("the undos end", SLACK, here.close()).await;
    assert!(nodes(&raw, "moved").await.is_empty() && nodes(&raw, "elsewhere").await.is_empty());
}

#[test]
fn a_client_of_a_runtime_that_is_gone_says_so() {
    let server = ZooKeeper::start().unwrap();
    let url = format!("zookeeper://{}?session=4s", server.address());
    let there = runtime();
    let client = there.block_on(client(&url));
    let guard = there.block_on(client.acquire("a")).unwrap();
    drop(there);
    assert!(!guard.is_held());
    let here = runtime();
    let e = here.block_on(client.acquire("a")).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable);
    assert!(e.message().contains("runtime"), "{e}");
    // Dropped where no runtime is, and on a thread of its own.
    std::thread::spawn(move || drop((guard, client))).join().unwrap();
    let e = futures_like_block_on(engine(&url));
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
}

/// Polls without any runtime.
fn futures_like_block_on<T: std::fmt::Debug>(
    work: impl Future<Output = fencelock_core::Result<T>>,
) -> fencelock_core::Error {
    let mut work = std::pin::pin!(work);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match work.as_mut().poll(&mut context) {
        std::task::Poll::Ready(outcome) => outcome.unwrap_err(),
        std::task::Poll::Pending => unreachable!("it has nothing to wait for"),
    }
}

/// The creation of a node is on its way while its session is replaced and its claim undone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_undo_outlasts_the_session_that_the_claim_was_sent_in() {
    let server = ZooKeeper::start().unwrap();
    let proxy = Proxy::before(server.address()).unwrap();
    let raw = raw(&server.address().to_string()).await;
    let url = format!("zookeeper://127.0.0.1:{}?session=4s&request_timeout=1s", proxy.port());
    let there = runtime();
    let engine = there.spawn(async move { engine(&url).await.unwrap() }).await.unwrap();
    // A name that is known.
    on(Arc::<ZooKeeperLock>::clone(&engine)).acquire("late").await.unwrap().release().await.unwrap();
    let claim = Terms::new(LockName::new("late").unwrap(), Duration::from_secs(1)).mint().unwrap();
    proxy.set(Mood::DelayRequests(Duration::from_millis(3_000)));
    let (asking, asked) = (Arc::clone(&engine), claim.clone());
    let trying = tokio::spawn(async move { asking.try_acquire(&asked).await });
    until("it is sent", SLACK, || async { claim.was_sent() }).await;
    tokio::time::sleep(Duration::from_millis(600)).await;
    let sent = Instant::now();
    // What the proxy has read by now it delivers late.
    proxy.set(Mood::Honest);
    aside(move || drop(there)).await;
    trying.await.unwrap().unwrap_err();
    assert!(claim.is_unanswered());
    let mut refusals = 0;
    within("undone", SLACK, async {
        while let Err(e) = engine.abandon(&claim).await {
            assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
            refusals += 1;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    println!("undone after {:?} and {refusals} refusals", sent.elapsed());
    // From here on nothing of it may be there, nor come.
    let end = Instant::now() + Duration::from_millis(4_000);
    while Instant::now() < end {
        assert!(nodes(&raw, "late").await.is_empty(), "a node came after its claim had been undone");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Of a session with little to spare over what a server may lag.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_session_grants_with_time_left_and_extends_by_what_it_says() {
    // K is 4.4 s of 8 s.
    let settings = ZooKeeperSettings::default().with_tick(400).with_sync_limit(10);
    let ensemble = Ensemble::start_with(3, &settings).unwrap();
    let url = format!("zookeeper://{}?session=8s&request_timeout=2s", ensemble.addresses());
    let clients = [client(&url).await, client(&url).await];
    let raw = raw(&ensemble.addresses()).await;
    let usable = Duration::from_millis(3_600);
    let guard = clients[0].acquire("short").await.unwrap();
    let mut waiting = Vec::new();
    for place in 0..12 {
        waiting.push(in_line(&raw, &clients[place % 2], "short").await);
    }
    let mut places = nodes(&raw, "short").await;
    places.sort_by_key(|node| node[33..].to_owned());
    drop(guard);
    for (at, waiter) in waiting.into_iter().enumerate() {
        let next = within("served", SLACK, waiter).await.unwrap().unwrap();
        let path = next.evidence().get("path").unwrap().to_owned();
        assert!(path.ends_with(&places[at + 1]), "{at}: another place than it had at first");
        assert!(next.remaining() <= usable);
        // At different ages of the last heartbeat.
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..150))).await;
        next.release().await.unwrap();
    }
    let fixed = clients[0].named("fixed").auto_renew(false).acquire().await.unwrap();
    tokio::time::sleep(Duration::from_millis(600)).await;
    let asked = Instant::now();
    fixed.extend(Duration::from_millis(3_400)).await.unwrap();
    let left = fixed.remaining() + asked.elapsed();
    assert!(left >= Duration::from_millis(3_300), "extended by 3.4 s, and {left:?} are left");
    fixed.extend(Duration::from_secs(8)).await.unwrap();
    assert!(fixed.remaining() <= usable, "more than the session allows: {:?}", fixed.remaining());
    assert_eq!(fixed.extend(Duration::from_secs(9)).await.unwrap_err().kind(), ErrorKind::InvalidConfig);
}
