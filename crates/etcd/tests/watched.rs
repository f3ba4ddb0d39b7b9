//! What watches miss, and a lock that is taken away.

#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs, reason = "a test")]

mod common;

use common::{LONG, client, connect, plain, queued};
use fencelock_core::{ErrorKind, LossReason};
use fencelock_etcd::etcd_client::{Txn, TxnOp};
use fencelock_etcd::{EtcdConfig, OwnedInEtcd};
use fencelock_lab::{Etcd, Mood, Proxy};
use std::time::{Duration, Instant};

/// While the holder's stream is down its lock is taken away, and the history compacted at that very revision: the server
/// has nothing to tell it, and it is told all the same, long before a keepalive is due. So is a waiter.
#[tokio::test(flavor = "multi_thread")]
async fn a_compaction_at_the_revision_of_the_loss_hides_nothing() {
    let etcd = Etcd::start().unwrap();
    let ttl = Duration::from_secs(60);
    let way = Proxy::before(etcd.endpoint(0).unwrap()).unwrap();
    let behind = EtcdConfig::new([format!("127.0.0.1:{}", way.port())]);
    let (holder, waiter) = (connect(behind.clone()).await, connect(behind).await);
    let operator = client(&etcd).await;
    let guard = holder.named("a").ttl(ttl).acquire().await.unwrap();
    let lock = waiter.named("a").ttl(ttl);
    let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
    queued(&etcd, "a", 2).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    way.set(Mood::Refuse);
    assert!(operator.force_release("a").await.unwrap());
    let lost_at = common::revision(&etcd).await;
    plain(&etcd).await.compact(lost_at, None).await.unwrap();
    assert!(guard.is_held(), "it cannot know yet");
    way.set(Mood::Honest);
    let opened = Instant::now();
    let reason = tokio::time::timeout(Duration::from_secs(15), guard.lost()).await.unwrap();
    eprintln!("told {reason:?} {:?} after the way was open again", opened.elapsed());
    assert_eq!(reason, LossReason::Revoked);
    let next = tokio::time::timeout(Duration::from_secs(15), waiting).await.unwrap().unwrap();
    eprintln!("and the waiter was granted after {:?}", opened.elapsed());
    next.release().await.unwrap();
}

/// A hold with a lock delay is taken away: nobody holds, nobody is granted, and the old holder's writes,
/// release and undo change nothing, until the delay is over; then the queue goes on in its order.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_taken_away_stays_closed_for_its_lock_delay() {
    let etcd = Etcd::start().unwrap();
    let (holder, waiter, other) = (client(&etcd).await, client(&etcd).await, client(&etcd).await);
    let mut store = plain(&etcd).await;
    let delay = Duration::from_secs(4);
    let guard = holder.named("a").ttl(Duration::from_secs(20)).lock_delay(delay).acquire().await.unwrap();
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
