//! What watches miss, and a lock that is taken away.

#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs, reason = "a test")]

mod common;

use common::{LONG, client, connect, plain, queued};
use fencelock_core::{ErrorKind, LockClient, LossReason};
use fencelock_etcd::etcd_client::{CompactionOptions, Txn, TxnOp};
use fencelock_etcd::{EtcdConfig, OwnedInEtcd};
use fencelock_lab::{Etcd, Mood, Proxy};
use std::time::{Duration, Instant};

/// Cuts the way, takes the lock away and compacts the history at that very revision; then lets them connect again.
/// Of what they watch the server has nothing to tell them, and does not say so.
async fn hidden_loss(etcd: &Etcd, way: &Proxy, operator: &LockClient) {
    // A watch of an own place has begun by now.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    way.set(Mood::Refuse);
    let before = common::revision(etcd).await;
    assert!(operator.force_release("a").await.unwrap());
    assert_eq!(common::revision(etcd).await, before + 1);
    let physically = CompactionOptions::new().with_physical();
    plain(etcd).await.compact(before + 1, Some(physically)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    way.set(Mood::Honest);
}

async fn behind_a_way(etcd: &Etcd) -> (Proxy, LockClient) {
    let way = Proxy::before(etcd.endpoint(0).unwrap()).unwrap();
    let client = connect(EtcdConfig::new([format!("127.0.0.1:{}", way.port())])).await;
    (way, client)
}

/// The holder is told long before a keepalive is due.
#[tokio::test(flavor = "multi_thread")]
async fn a_compaction_at_the_revision_of_the_loss_hides_nothing() {
    let etcd = Etcd::start().unwrap();
    let operator = client(&etcd).await;
    let (way, holder) = behind_a_way(&etcd).await;
    let guard = holder.named("a").ttl(Duration::from_secs(60)).acquire().await.unwrap();
    hidden_loss(&etcd, &way, &operator).await;
    assert!(guard.is_held(), "it cannot know yet");
    let opened = Instant::now();
    let reason = tokio::time::timeout(Duration::from_secs(15), guard.lost()).await.unwrap();
    eprintln!("told {reason:?} {:?} after the way was open again", opened.elapsed());
    assert_eq!(reason, LossReason::Revoked);
}

/// The waiter is granted long before it would look by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_compaction_at_the_revision_of_a_release_is_no_lost_wake_up() {
    let etcd = Etcd::start().unwrap();
    let operator = client(&etcd).await;
    let _guard = operator.named("a").ttl(Duration::from_secs(60)).acquire().await.unwrap();
    let (way, waiter) = behind_a_way(&etcd).await;
    let lock = waiter.named("a").ttl(Duration::from_secs(60));
    let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
    queued(&etcd, "a", 2).await;
    hidden_loss(&etcd, &way, &operator).await;
    let opened = Instant::now();
    let next = tokio::time::timeout(Duration::from_secs(15), waiting).await.unwrap().unwrap();
    eprintln!("the waiter was granted {:?} after the way was open again", opened.elapsed());
    next.release().await.unwrap();
}

/// A hold with a lock delay is taken away: nobody holds, nobody is granted, and the old holder's writes,
/// release and undo change nothing, until the delay is over; then the queue goes on in its order.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_taken_away_stays_closed_for_its_lock_delay() {
    let etcd = Etcd::start().unwrap();
    let (holder, waiter, other) = (client(&etcd).await, client(&etcd).await, client(&etcd).await);
    let mut store = plain(&etcd).await;
    let delay = Duration::from_secs(6);
    let guard = holder.named("a").ttl(Duration::from_secs(60)).lock_delay(delay).acquire().await.unwrap();
    let mut waiting = Vec::new();
    for place in 0..2 {
        let lock = waiter.named("a").ttl(Duration::from_secs(20));
        waiting.push(tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            (guard, Instant::now())
        }));
        queued(&etcd, "a", place + 2).await;
    }
    let taken = Instant::now();
    {
        // Nobody needs to be there afterwards.
        let operator = client(&etcd).await;
        assert!(operator.force_release("a").await.unwrap());
        assert!(!operator.force_release("a").await.unwrap(), "nobody holds it any more");
        operator.close().await;
    }
    let write = Txn::new().when([guard.owned().unwrap()]).and_then([TxnOp::put("data", "late", None)]);
    assert!(!store.txn(write).await.unwrap().succeeded(), "the late writer");
    assert_eq!(tokio::time::timeout(LONG, guard.lost()).await.unwrap(), LossReason::Revoked);
    let told = taken.elapsed();
    assert!(told < Duration::from_secs(15), "{told:?}: by its watch, before a keepalive is due");
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(other.inspect("a").await.unwrap().is_none());
    assert!(other.list("").await.unwrap().is_empty());
    assert!(other.try_acquire("a").await.unwrap().is_none());
    drop(holder);
    let mut granted = Vec::new();
    for one in waiting {
        let (guard, at) = tokio::time::timeout(LONG, one).await.unwrap().unwrap();
        granted.push((guard.token(), at - taken));
        guard.release().await.unwrap();
    }
    eprintln!("told after {told:?}, the next granted after {:?}", granted[0].1);
    assert!(granted[0].1 >= delay && granted[0].0 < granted[1].0 && granted[0].1 < granted[1].1, "{granted:?}");
}

/// The release that an operator repeats, or one beside a holder that comes and goes, takes no more than one hold.
#[tokio::test(flavor = "multi_thread")]
async fn a_hold_without_a_lock_delay_is_freed_at_once() {
    let etcd = Etcd::start().unwrap();
    let (holder, other) = (client(&etcd).await, client(&etcd).await);
    let guard = holder.named("a").ttl(Duration::from_secs(30)).acquire().await.unwrap();
    assert!(other.force_release("a").await.unwrap());
    let next = other.try_acquire("a").await.unwrap().unwrap();
    assert_eq!(guard.lost().await, LossReason::Revoked);
    assert!(next.token() > guard.token());
    next.release().await.unwrap();
}

/// Taken away while its process does not run, so that the holder releases in good faith: what is closed stays closed.
#[test]
fn a_release_does_not_open_what_was_closed() {
    let etcd = Etcd::start().unwrap();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // The holder's stands still but for what is asked of it here: no watch can tell it meanwhile.
    let (its, others) = (runtime(), runtime());
    let (holder, other) = (its.block_on(client(&etcd)), others.block_on(client(&etcd)));
    for round in 0..5 {
        let name = format!("lock-{round}");
        let lock = holder.named(&name).ttl(Duration::from_secs(30)).lock_delay(Duration::from_secs(20));
        let guard = its.block_on(lock.acquire()).unwrap();
        assert!(others.block_on(other.force_release(&name)).unwrap());
        assert!(guard.is_held(), "in good faith");
        assert_eq!(its.block_on(guard.release()).unwrap_err().kind(), ErrorKind::Lost);
        assert!(others.block_on(other.try_acquire(&name)).unwrap().is_none(), "closed for 20 s");
        let left = others.block_on(common::keys(&etcd, &format!("fencelock/l/{name}/")));
        assert_eq!(left.len(), 1);
    }
}

/// A client with nothing but a hold or a waiter on a quiet store goes on with the stream that it has: newer servers tell
/// no progress of a watch that begins after their last revision, and that is no break.
#[tokio::test(flavor = "multi_thread")]
async fn a_quiet_stream_is_not_taken_for_a_broken_one() {
    let etcd = Etcd::start().unwrap();
    let one = client(&etcd).await;
    let opened = || etcd.metric(0, "grpc_server_started_total{grpc_method=\"Watch\"").unwrap_or(0.0);
    let guard = one.named("a").ttl(Duration::from_secs(60)).acquire().await.unwrap();
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert!(opened() > 0.5 && opened() < 1.5, "{} streams for one hold", opened());
    guard.release().await.unwrap();
    // Nor when nothing is watched any more.
    tokio::time::sleep(Duration::from_secs(11)).await;
    let guard = one.named("b").ttl(Duration::from_secs(60)).acquire().await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(opened() < 1.5, "{} streams for two holds", opened());
    guard.release().await.unwrap();
}
