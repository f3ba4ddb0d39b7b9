//! The leader on a host of its own is cut off, from everybody or from the other members alone, then healed. Needs root, for network namespaces.

#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs, reason = "a test")]

mod common;

use common::{History, LONG, TTL, client, connect, queued};
use fencelock_core::LossReason;
use fencelock_etcd::EtcdConfig;
use fencelock_lab::{Etcd, Network};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// How the leader is cut off.
#[derive(Clone, Copy, Debug)]
enum Cut {
    /// From everybody.
    Whole,
    /// From the other members, while every client still reaches it.
    FromMembers,
}

impl Cut {
    fn cut(self, network: &Network, leader: usize) {
        match self {
            Self::Whole => network.isolate(leader).unwrap(),
            Self::FromMembers => (0..3).filter(|at| *at != leader).for_each(|at| network.separate(leader, at).unwrap()),
        }
    }

    fn heal(self, network: &Network, leader: usize) {
        match self {
            Self::Whole => network.heal(leader).unwrap(),
            Self::FromMembers => (0..3).filter(|at| *at != leader).for_each(|at| network.reunite(leader, at).unwrap()),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_is_isolated_while_one_holds_and_five_wait() {
    isolated(Cut::Whole, false).await;
}

/// It goes on taking requests and keepalives, and does not know yet that it leads nobody.
#[tokio::test(flavor = "multi_thread")]
async fn the_leader_is_cut_off_from_the_members_and_not_from_its_clients() {
    isolated(Cut::FromMembers, false).await;
}

/// As before, and the holder knows no other member: it is told by its own clock, before the next is granted.
#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_knows_the_cut_off_leader_alone_is_told_in_time() {
    isolated(Cut::FromMembers, true).await;
}

async fn isolated(how: Cut, leader_alone: bool) {
    let network = Network::of(3).unwrap();
    let etcd = Etcd::start_in(&network).unwrap();
    let leader = etcd.leader().unwrap();
    let history = History::default();
    let holder = match leader_alone {
        true => connect(EtcdConfig::new([etcd.endpoints().remove(leader)])).await,
        false => client(&etcd).await,
    };
    let guard = holder.acquire("a").await.unwrap();
    let mut waiters = JoinSet::new();
    for place in 1..=5 {
        let (one, history) = (client(&etcd).await, history.clone());
        waiters.spawn(async move {
            let guard = one.acquire("a").await.unwrap();
            history.hold(place, &guard, tokio::time::sleep(Duration::from_millis(20))).await;
            // Not known is no loss of order: it is made good in the background.
            let _ = guard.release().await;
        });
        queued(&etcd, "a", place + 1).await;
    }
    assert_eq!(etcd.leader().unwrap(), leader, "another leads before the cut");
    let cut = Instant::now();
    how.cut(&network, leader);
    history.hold(0, &guard, tokio::time::sleep(TTL * 3)).await;
    let stayed = guard.is_held();
    if leader_alone {
        assert!(!stayed && guard.lost().await == LossReason::Expired);
    }
    let released = guard.release().await.map_err(|e| e.kind());
    eprintln!("leader cut off ({how:?}): the holder stayed: {stayed}, released: {released:?}");
    while let Some(waiter) = tokio::time::timeout(LONG, waiters.join_next()).await.unwrap() {
        waiter.unwrap();
    }
    let served = cut.elapsed();
    how.heal(&network, leader);
    let held = history.checked();
    let order: Vec<_> = held.iter().map(|held| held.who).collect();
    eprintln!("all five served {served:?} after the cut, in the order {order:?}");
    assert!(order.is_sorted() && order.len() == 6, "{order:?}");
    let again = tokio::time::timeout(LONG, holder.acquire("a")).await.unwrap().unwrap();
    assert!(again.token().get() > held.last().unwrap().token);
    again.release().await.unwrap();
}
