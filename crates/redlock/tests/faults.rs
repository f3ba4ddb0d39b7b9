//! Nodes that are down, hung, slow, late or empty.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, missing_docs, reason = "a test")]

mod common;

use common::{claim, client, engine, initialised, locks, operator, proxies, until};
use fencelock_core::{Attempt, DistributedLock as _, ErrorKind, FencingToken, Level, RuleOutcome};
use fencelock_lab::{Mood, RedisNodes};
use fencelock_redlock::{NodeState, RedlockLock};
use std::time::{Duration, Instant};

const TTL: Duration = Duration::from_secs(10);
const SLACK: Duration = Duration::from_secs(15);

async fn five() -> RedisNodes {
    initialised(RedisNodes::start(5).unwrap()).await
}

/// The median time of an acquire, each followed by a release.
async fn time_of_acquire(engine: &RedlockLock, what: &str) -> Duration {
    let mut times = Vec::new();
    for round in 0..80 {
        let claim = claim(&format!("{what} {round}"), TTL);
        let begun = Instant::now();
        let Attempt::Granted(grant) = engine.try_acquire(&claim).await.unwrap() else { unreachable!("contended") };
        times.push(begun.elapsed());
        grant.lease.release().await.unwrap();
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    times.sort();
    times[times.len() / 2]
}

/// Two of five are hurt by `hurt`, and beside them five others are well: each is measured in turn, so that a busy
/// machine is busy for both.
async fn as_fast_with_two_of_five(what: &str, hurt: impl Fn(&mut RedisNodes, &[fencelock_lab::Proxy])) {
    let mut nodes = five().await;
    let (proxies, addresses) = proxies(&nodes);
    let engine = engine(&addresses).await.unwrap();
    let well_nodes = five().await;
    let (_well_proxies, addresses) = self::proxies(&well_nodes);
    let well = self::engine(&addresses).await.unwrap();
    time_of_acquire(&engine, "warm").await;
    time_of_acquire(&well, "warm").await;
    hurt(&mut nodes, &proxies);
    // The first one finds out.
    let Attempt::Granted(grant) = engine.try_acquire(&claim("first", TTL)).await.unwrap() else {
        unreachable!("contended")
    };
    grant.lease.release().await.unwrap();
    let mut ratios = Vec::new();
    for _ in 0..6 {
        let all_well = time_of_acquire(&well, "well").await;
        let hurt = time_of_acquire(&engine, "hurt").await;
        ratios.push(hurt.as_secs_f64() / all_well.as_secs_f64());
        println!("two of five {what}: {hurt:?}, all five well: {all_well:?}");
        if ratios.last().is_some_and(|ratio| *ratio <= 1.5) {
            return;
        }
    }
    unreachable!("two of five {what}: {ratios:?} times the healthy");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_of_five_down_cost_nothing() {
    as_fast_with_two_of_five("down", |nodes, proxies| {
        for at in [1, 3] {
            nodes.nodes_mut()[at].server_mut().kill();
            proxies[at].set(Mood::Refuse);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_of_five_hung_cost_nothing() {
    as_fast_with_two_of_five("hung", |nodes, _| [0, 4].iter().for_each(|at| nodes.nodes()[*at].server().stop())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_of_five_slow_cost_nothing() {
    as_fast_with_two_of_five("slow by 2 s", |_, proxies| {
        [2, 3].iter().for_each(|at| proxies[*at].set(Mood::DelayRequests(Duration::from_secs(2))));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_gone_are_told_and_nothing_stays_on_the_living() {
    let mut nodes = five().await;
    let client = client(&nodes.addresses()).await;
    client.acquire("before").await.unwrap().release().await.unwrap();
    for at in [0, 2, 4] {
        nodes.nodes_mut()[at].server_mut().kill();
    }
    let begun = Instant::now();
    let e = client.try_acquire("a").await.unwrap_err();
    println!("three of five gone: {e}, after {:?}", begun.elapsed());
    assert_eq!(e.kind(), ErrorKind::Unavailable);
    assert!(e.to_string().contains("2 of 5 nodes took part"), "{e}");
    let e = client.named("a").wait_at_most(Duration::from_millis(500)).acquire().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    until("nothing is left on the living", SLACK, || locks(&nodes, 1) == 0 && locks(&nodes, 3) == 0).await;
    for at in [0, 2, 4] {
        nodes.nodes_mut()[at].restart().unwrap();
    }
    // They have lost their counters: two of five are no majority.
    let e = client.try_acquire("a").await.unwrap_err();
    assert!(e.to_string().contains("lost their counters"), "{e}");
    until("nothing is left on the living", SLACK, || locks(&nodes, 1) == 0 && locks(&nodes, 3) == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_answers_late_breaks_no_later_attempt() {
    let nodes = initialised(RedisNodes::start(3).unwrap()).await;
    let (proxies, addresses) = proxies(&nodes);
    let limit = Duration::from_millis(500);
    let engine = common::config(&addresses).unwrap().with_request_timeout(limit);
    let engine = RedlockLock::connect(engine).await.unwrap();
    let late = limit * 3;
    let mut last = FencingToken::new(0);
    for round in 0..12 {
        // Another node is late each time, so that its late requests meet later holds.
        for (at, proxy) in proxies.iter().enumerate() {
            proxy.set(if at == round % 3 { Mood::DelayRequests(late) } else { Mood::Honest });
        }
        let claim = claim("a", TTL);
        let begun = Instant::now();
        let grant = loop {
            match engine.try_acquire(&claim.latest()).await {
                Ok(Attempt::Granted(grant)) => break grant,
                // The node that was late before may still hold a part; the rest is a majority, or will be.
                Ok(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                Err(e) => assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}"),
            }
            assert!(begun.elapsed() < SLACK * 2, "round {round}");
        };
        assert!(grant.token > last, "round {round}: {} after {last}", grant.token);
        last = grant.token;
        grant.lease.release().await.unwrap();
    }
    proxies.iter().for_each(|proxy| proxy.set(Mood::Honest));
    tokio::time::sleep(late * 2).await;
    let left: Vec<_> = (0..3).map(|at| locks(&nodes, at)).collect();
    assert_eq!(left, [0, 0, 0], "late requests took nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_node_never_counts_until_it_is_re_seeded() {
    let mut nodes = initialised(RedisNodes::start(3).unwrap()).await;
    let client = client(&nodes.addresses()).await;
    let first = client.acquire("a").await.unwrap();
    let token = first.token();
    first.release().await.unwrap();
    nodes.nodes_mut()[0].server_mut().kill();
    nodes.nodes_mut()[0].restart().unwrap();
    // With one more away it would be the one that makes up the majority.
    client.acquire("b").await.unwrap().release().await.unwrap();
    nodes.nodes()[1].server().stop();
    let e = client.try_acquire("a").await.unwrap_err();
    assert!(e.kind() == ErrorKind::Unavailable && e.to_string().contains("re-seeded"), "{e}");
    assert_eq!(locks(&nodes, 0), 0, "it takes no part");
    nodes.nodes()[1].server().cont();
    let status = operator(&nodes).status().await.unwrap();
    assert_eq!((status.nodes[0].state.clone(), status.nodes[0].counters, status.voting()), (NodeState::Empty, 0, 2));
    // Whoever connects now sees it, and a level that needs no counters of it.
    let found = engine(&nodes.addresses()).await.unwrap().guarantees();
    let seeded = found.rules().iter().find(|rule| rule.id() == "redlock.seeded").unwrap();
    assert!(seeded.outcome() == RuleOutcome::Proved && seeded.reason().contains("2 of 3"), "{}", seeded.reason());
    assert!(seeded.reason().contains(&nodes.nodes()[0].address().to_string()));

    let node = nodes.nodes()[0].address().to_string();
    let hasty = operator(&nodes).reseed(&node, Duration::from_secs(1)).await.unwrap_err();
    assert_eq!(hasty.kind(), ErrorKind::InvalidConfig, "{hasty}");
    assert!(operator(&nodes).reseed(&node, Duration::from_secs(4)).await.unwrap());
    nodes.nodes()[1].server().stop();
    let after = client.named("a").wait_at_most(SLACK).acquire().await.unwrap();
    assert!(after.token() > token, "{} after {token}", after.token());
    after.release().await.unwrap();
    nodes.nodes()[1].server().cont();
}

#[tokio::test(flavor = "multi_thread")]
async fn clocks_of_a_majority_jump_and_tokens_still_tell() {
    use fencelock_core::Gate as _;
    let nodes = initialised(RedisNodes::start_with_clocks(3).unwrap()).await;
    let (one, other) = (client(&nodes.addresses()).await, client(&nodes.addresses()).await);
    let first = one.named("a").ttl(Duration::from_secs(60)).acquire().await.unwrap();
    assert!(other.try_acquire("a").await.unwrap().is_none());
    nodes.jump(0, 120).unwrap();
    nodes.jump(1, 120).unwrap();
    let second = other.named("a").wait_at_most(SLACK).acquire().await.unwrap();
    println!("two of three clocks 120 s ahead: holders with tokens {} and {}", first.token(), second.token());
    assert!(first.is_held() && second.is_held(), "two holders, which nobody can prevent here");
    assert!(second.token() > first.token());
    let gate = fencelock_core::memory::MemoryGate::<u32>::new();
    drop(gate.enter((), "a", second.token()).await.unwrap().admitted().unwrap());
    let stale = gate.enter((), "a", first.token()).await.unwrap().admitted().unwrap_err();
    assert_eq!(stale.newest, second.token(), "the gate refuses the older");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_are_not_independent_are_refused() {
    let nodes = RedisNodes::start(3).unwrap();
    let address = |at: usize| nodes.nodes()[at].address();
    // The same server by another name.
    let twice = format!("{},{},localhost:{}", address(0), address(1), address(0).port());
    let e = engine(&twice).await.unwrap_err();
    assert!(e.kind() == ErrorKind::Refused && e.to_string().contains("the same server"), "{e}");
    let e =
        fencelock_redlock::RedlockOperator::new(common::config(&twice).unwrap()).unwrap().init(0).await.unwrap_err();
    assert!(e.kind() == ErrorKind::Refused && e.to_string().contains("the same server"), "{e}");
    let e = engine(&nodes.addresses()).await.unwrap_err();
    assert!(e.kind() == ErrorKind::Refused && e.to_string().contains("fencelock redlock init"), "{e}");
    assert!(operator(&nodes).init(0).await.unwrap());
    assert!(!operator(&nodes).init(0).await.unwrap(), "made already");
    nodes.nodes()[2].command(&["REPLICAOF", "127.0.0.1", &address(1).port().to_string()]).unwrap();
    let e = engine(&nodes.addresses()).await.unwrap_err();
    assert!(e.kind() == ErrorKind::Refused && e.to_string().contains("is a replica of"), "{e}");
    let status = operator(&nodes).status().await.unwrap();
    assert_eq!((status.voting(), status.nodes[2].replica_of.is_some()), (2, true), "{status:?}");
    let twice = common::config(&twice).unwrap();
    let status = fencelock_redlock::RedlockOperator::new(twice).unwrap().status().await.unwrap();
    assert_eq!((status.voting(), status.nodes[2].twin_of.clone()), (2, Some(address(0).to_string())), "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sets_do_not_mix() {
    let three = initialised(RedisNodes::start(3).unwrap()).await;
    let others = initialised(RedisNodes::start(3).unwrap()).await;
    let mixed =
        format!("{},{},{}", three.nodes()[0].address(), three.nodes()[1].address(), others.nodes()[0].address());
    let e = engine(&mixed).await.unwrap_err();
    assert!(e.kind() == ErrorKind::Refused && e.to_string().contains("different sets"), "{e}");
    let status =
        fencelock_redlock::RedlockOperator::new(common::config(&mixed).unwrap()).unwrap().status().await.unwrap();
    assert_eq!(status.voting(), 2, "{status:?}");
    let five = five().await;
    let part: Vec<_> = five.nodes().iter().take(3).map(|node| node.address().to_string()).collect();
    let e = engine(&part.join(",")).await.unwrap_err();
    assert!(e.kind() == ErrorKind::Refused && e.to_string().contains("initialised with 5 nodes"), "{e}");
    let part = common::config(&part.join(",")).unwrap();
    let status = fencelock_redlock::RedlockOperator::new(part).unwrap().status().await.unwrap();
    assert!(status.voting() == 0 && status.nodes[0].set_size == Some(5), "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_level_is_what_all_nodes_give() {
    let durable = initialised(RedisNodes::start_durable(3).unwrap()).await;
    assert_eq!(engine(&durable.addresses()).await.unwrap().guarantees().level(), Some(Level::Fenced));
    durable.nodes()[1].command(&["CONFIG", "SET", "appendfsync", "everysec"]).unwrap();
    assert_eq!(engine(&durable.addresses()).await.unwrap().guarantees().level(), Some(Level::Advisory));
    let attested = common::config(&durable.addresses()).unwrap().with_attested(["redlock.delayed_restart"]);
    assert_eq!(RedlockLock::connect(attested).await.unwrap().guarantees().level(), Some(Level::Leased));
}

/// Dropped anywhere, and run again: the set is whole, and no token comes twice.
#[tokio::test(flavor = "multi_thread")]
async fn init_and_reseed_can_be_interrupted() {
    for after in [3, 30, 120, 300] {
        let mut nodes = RedisNodes::start(3).unwrap();
        let limit = Duration::from_millis(after);
        let made = tokio::time::timeout(limit, operator(&nodes).init(0)).await;
        if made.is_err() {
            // The set may be ready, or not; it is never half so.
            if let Err(e) = engine(&nodes.addresses()).await {
                assert_eq!(e.kind(), ErrorKind::Refused, "{e}");
            }
        }
        operator(&nodes).init(0).await.unwrap();
        let status = operator(&nodes).status().await.unwrap();
        assert_eq!(status.voting(), 3, "{status:?}");
        let client = client(&nodes.addresses()).await;
        let first = client.acquire("a").await.unwrap();
        let token = first.token();
        first.release().await.unwrap();
        nodes.nodes_mut()[1].server_mut().kill();
        nodes.nodes_mut()[1].restart().unwrap();
        let node = nodes.nodes()[1].address().to_string();
        let delay = Duration::from_secs(4);
        assert!(
            tokio::time::timeout(delay + limit, operator(&nodes).reseed(&node, delay)).await.is_err() || after > 100
        );
        operator(&nodes).reseed(&node, delay).await.unwrap();
        assert_eq!(operator(&nodes).status().await.unwrap().voting(), 3);
        let next = client.acquire("a").await.unwrap();
        assert!(next.token() > token);
        next.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn init_makes_nothing_anew_where_tokens_were_given_out() {
    let mut nodes = initialised(RedisNodes::start(3).unwrap()).await;
    nodes.nodes_mut()[1].server_mut().kill();
    let e = operator(&nodes).init(0).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    nodes.nodes_mut()[1].restart().unwrap();
    let e = operator(&nodes).init(0).await.unwrap_err();
    assert!(e.kind() == ErrorKind::Refused && e.to_string().contains("could repeat tokens"), "{e}");
    // With a majority lost nobody knows the tokens any more.
    nodes.nodes_mut()[0].server_mut().kill();
    nodes.nodes_mut()[0].restart().unwrap();
    let node = nodes.nodes()[0].address().to_string();
    let e = operator(&nodes).reseed(&node, Duration::from_secs(4)).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    assert!(engine(&nodes.addresses()).await.unwrap_err().to_string().contains("no majority"));
}
