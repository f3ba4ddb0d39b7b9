//! A server is frozen while the others go on without it, and answers what it was sent before it notices: here
//! surely, since it is cut off from them meanwhile. Servers in network namespaces; needs root.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, missing_docs, reason = "a test")]

mod common;

use common::{SLACK, client, in_line, raw, until, watch, within};
use fencelock_lab::{Ensemble, Mood, Network, Proxy, ZooKeeperSettings};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Frozen for longer than a follower may be without its leader, then heard once more, then cut off from the holder.
async fn frozen(leads: bool) {
    // 0.5 s are taken off a session, so that a connection is not given up for a silence of 4 s.
    let network = Network::of(3).unwrap();
    let ensemble = Ensemble::start_in(&network, &ZooKeeperSettings::default()).unwrap();
    let leader = ensemble.wait_for_leader().unwrap();
    let server = if leads { leader } else { (leader + 1) % 3 };
    let proxy = Proxy::before(ensemble.members()[server].address()).unwrap();
    let holder = client(&format!("zookeeper://127.0.0.1:{}?session=12s&request_timeout=2s", proxy.port())).await;
    let elsewhere = ensemble.members()[(leader + 2) % 3].address();
    let (other, raw) =
        (client(&format!("zookeeper://{elsewhere}?session=12s")).await, raw(&elsewhere.to_string()).await);
    let guard = holder.acquire("frozen").await.unwrap();
    let fixed = Arc::new(holder.named("fixed").auto_renew(false).acquire().await.unwrap());
    let waiting = in_line(&raw, &other, "frozen").await;
    let before = guard.remaining();
    until("renewed", SLACK, || async { guard.remaining() > before }).await;
    let told = watch(&guard);
    let start = Instant::now();
    ensemble.members()[server].server().stop();
    // The others' last words are in its buffers by then.
    tokio::time::sleep(Duration::from_millis(300)).await;
    for member in (0..3).filter(|member| *member != server) {
        network.separate(server, member).unwrap();
    }
    tokio::time::sleep(Duration::from_millis(3_000)).await;
    let asking: Vec<_> = (0..20)
        .map(|_| {
            let fixed = Arc::clone(&fixed);
            tokio::spawn(async move { fixed.extend(Duration::from_secs(12)).await.is_ok() })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let thawed = start.elapsed();
    ensemble.members()[server].server().cont();
    // Cut off at the first answer that moves the deadline, before the session goes elsewhere.
    let old = guard.remaining();
    let answer = async {
        while guard.remaining() <= old {
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
    };
    let _ = tokio::time::timeout(Duration::from_millis(400), answer).await;
    proxy.set(Mood::Refuse);
    let mut answered = 0;
    for asked in asking {
        answered += u32::from(asked.await.unwrap());
    }
    println!("thawed after {thawed:?}, {answered} of 20 answered, believed for another {:?}", guard.remaining());
    let next = within("the waiter is served", SLACK * 2, waiting).await.unwrap().unwrap();
    let (granted, believed) = (start.elapsed(), guard.remaining());
    let told = tokio::task::spawn_blocking(move || told.join().unwrap()).await.unwrap() - start;
    println!("told {told:?}, granted to the next {granted:?} after the server froze");
    assert!(next.token() > guard.token());
    assert!(told < granted, "two believed at once, the first for another {believed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_was_frozen_proves_nothing() {
    frozen(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_was_frozen_proves_nothing() {
    frozen(true).await;
}
