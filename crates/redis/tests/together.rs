//! What is ready together travels together, and each gets its own answer.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::indexing_slicing, missing_docs, reason = "a test")]

mod common;

use common::{SLACK, client, drained, locks, sent, through, until, url};
use fencelock_core::{Attempt, DistributedLock as _, Error, ErrorKind, LockClient, LockGuard, LockName, Terms};
use fencelock_lab::{Mood, Proxy, Redis};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

const TTL: Duration = Duration::from_secs(60);

fn calls(redis: &Redis) -> u64 {
    sent(redis).get("evalsha").copied().unwrap_or(0) + sent(redis).get("eval").copied().unwrap_or(0)
}

/// One try for each name, all at once; the outcomes in the order of the names.
async fn try_all(client: &LockClient, names: &[String]) -> Vec<Result<Option<LockGuard>, Error>> {
    let mut tries = JoinSet::new();
    for (at, name) in names.iter().enumerate() {
        let lock = client.named(name).ttl(TTL);
        tries.spawn(async move { (at, lock.try_acquire().await) });
    }
    let mut outcomes = tries.join_all().await;
    outcomes.sort_by_key(|(at, _)| *at);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

fn names(number: usize) -> Vec<String> {
    (0..number).map(|at| format!("lock {at}")).collect()
}

/// Every third is held by somebody else. Each is told of its own lock, and of no other's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_a_group_has_its_own_answer() {
    let redis = Redis::start().unwrap();
    let (client, other) = (client(&url(&redis)).await, client(&url(&redis)).await);
    let names = names(96);
    let mut held = Vec::new();
    for name in names.iter().step_by(3) {
        held.push(other.named(name).ttl(TTL).acquire().await.unwrap());
    }
    let before = calls(&redis);
    let outcomes = try_all(&client, &names).await;
    let cost = calls(&redis) - before;
    println!("96 tries at once: {cost} calls");
    assert!(cost <= 48, "{cost} calls for 96 tries");
    let mut releases = JoinSet::new();
    for (at, outcome) in outcomes.into_iter().enumerate() {
        let guard = outcome.unwrap();
        assert_eq!(guard.is_none(), at % 3 == 0, "{}", names[at]);
        let Some(guard) = guard else { continue };
        let shown = other.inspect(&names[at]).await.unwrap().unwrap();
        assert_eq!(shown.token, guard.token(), "{} was told another's token", names[at]);
        releases.spawn(guard.release());
    }
    let before = calls(&redis);
    assert!(releases.join_all().await.into_iter().all(|released| released.is_ok()));
    assert!(calls(&redis) - before <= 48);
    assert_eq!(locks(&redis), held.len());
    for guard in held {
        guard.release().await.unwrap();
    }
}

/// Keys of other programs, names that are asked for twice, ids that are dead, and a counter that is ahead of the clock: each is
/// answered as if it had come alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_out_of_the_common_is_answered_as_by_itself() {
    let redis = Redis::start().unwrap();
    let (first, mut stems) = (client(&url(&redis)).await, Vec::new());
    for name in ["lock 3", "lock 4"] {
        let guard = first.acquire(name).await.unwrap();
        let key = redis.command(&["KEYS", &format!("*:lock:{name}")]).unwrap().lines().nth(2).unwrap().to_owned();
        stems.push(key.trim_end_matches(&format!("lock:{name}")).to_owned());
        guard.release().await.unwrap();
    }
    let mut last: HashMap<String, u64> = HashMap::new();
    for round in 0..3 {
        let client = client(&url(&redis)).await;
        let mut names = names(120);
        names.extend_from_within(..20);
        if round > 0 {
            redis.command(&["SET", &format!("{}lock:lock 3", stems[0]), "theirs"]).unwrap();
            redis.command(&["HSET", &format!("{}lock:lock 4", stems[1]), "id", "theirs"]).unwrap();
        }
        if round == 1 {
            redis.command(&["ZADD", "fencelock:dead", "9000000000000000", "0123456789abcdef0123456789abcdef"]).unwrap();
        } else if round == 2 {
            redis.command(&["SET", "fencelock:fence", "9000000000000000"]).unwrap();
            last.insert("lock 5".to_owned(), 9_000_000_000_000_000);
        }
        let outcomes = try_all(&client, &names).await;
        let mut guards = Vec::new();
        for (name, outcome) in names.iter().zip(outcomes) {
            guards.extend(outcome.unwrap_or_else(|e| panic!("{name}: {e}")).into_iter().map(|guard| (name, guard)));
        }
        let held: HashSet<_> = guards.iter().map(|(name, _)| *name).collect();
        assert_eq!((guards.len(), held.len()), if round > 0 { (118, 118) } else { (120, 120) });
        for (name, guard) in &guards {
            let token = guard.token().get();
            let before = last.insert((*name).clone(), token);
            assert!(before.is_none_or(|before| token > before), "{name}: {token} after {before:?}");
            let shown = client.inspect(name).await.unwrap().unwrap();
            assert_eq!((shown.token, &*shown.holder), (guard.token(), client.holder()), "{name}");
        }
        let mut releases = JoinSet::new();
        guards.into_iter().for_each(|(_, guard)| drop(releases.spawn(guard.release())));
        assert!(releases.join_all().await.into_iter().all(|released| released.is_ok()));
        drained(&client).await;
        assert_eq!(locks(&redis), if round > 0 { 2 } else { 0 });
    }
}

/// An id that is dead takes nothing, those beside it do, and one that was dead for long enough may be used by whoever draws it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_whose_id_is_dead_is_refused_alone() {
    let redis = Redis::start().unwrap();
    let engine = common::engine(&url(&redis)).await.unwrap();
    let claims: Vec<_> = names(64)
        .iter()
        .map(|name| Terms::new(LockName::new(name).unwrap(), Duration::from_secs(30)).mint().unwrap())
        .collect();
    // Of this one a request may still arrive.
    drop(claims[7].request());
    engine.abandon(&claims[7]).await.unwrap();
    let id = claims[7].id().to_string();
    assert!(redis.command(&["ZSCORE", "fencelock:dead", &id]).unwrap().starts_with('$'));
    let left: i64 = redis.command(&["PTTL", "fencelock:dead"]).unwrap().trim().trim_start_matches(':').parse().unwrap();
    assert!((50_000..=60_000).contains(&left), "{left} ms");
    redis.command(&["ZADD", "fencelock:dead", "1", &claims[8].id().to_string()]).unwrap();
    let mut tries = JoinSet::new();
    for (at, claim) in claims.iter().cloned().enumerate() {
        let engine = Arc::clone(&engine);
        tries.spawn(async move { (at, engine.try_acquire(&claim).await) });
    }
    let mut grants = Vec::new();
    while let Some(tried) = tries.join_next().await {
        match tried.unwrap() {
            (_, Ok(Attempt::Granted(grant))) => grants.push(grant),
            (at, outcome) => assert_eq!((at, outcome.unwrap_err().kind()), (7, ErrorKind::Unavailable)),
        }
    }
    assert_eq!((grants.len(), locks(&redis)), (63, 63));
    for grant in grants {
        grant.lease.release().await.unwrap();
    }
    // The next that dies takes out what is over.
    drop(claims[9].request());
    engine.abandon(&claims[9]).await.unwrap();
    assert_eq!(redis.command(&["ZCARD", "fencelock:dead"]).unwrap(), ":2\r\n");
}

/// The counter is a list of somebody else's: each is told so, under its own name, and nothing is taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_fails_under_its_own_name() {
    let redis = Redis::start().unwrap();
    let client = client(&url(&redis)).await;
    let names = names(64);
    redis.command(&["LPUSH", "fencelock:fence", "x"]).unwrap();
    for (name, outcome) in names.iter().zip(try_all(&client, &names).await) {
        let e = outcome.unwrap_err();
        assert_eq!(
            (e.kind(), e.lock_name().map(|name| name.as_str())),
            (ErrorKind::Engine, Some(name.as_str())),
            "{e}"
        );
    }
    drained(&client).await;
    assert_eq!(locks(&redis), 0);
    redis.command(&["DEL", "fencelock:fence"]).unwrap();
    client.acquire("lock 7").await.unwrap().release().await.unwrap();
    drained(&client).await;
    assert_eq!(locks(&redis), 0);
}

/// Of all that were sent the answers are cut: nobody is told yes or no, and nothing is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_is_unknown_to_each() {
    let redis = Redis::start().unwrap();
    let proxy = Proxy::before(redis.address()).unwrap();
    let (client, other) = (client(&through(&proxy)).await, client(&url(&redis)).await);
    let names = names(64);
    let guards: Vec<_> = try_all(&client, &names).await.into_iter().map(|guard| guard.unwrap().unwrap()).collect();
    proxy.set(Mood::DropReplies);
    let mut releases = JoinSet::new();
    guards.into_iter().for_each(|guard| drop(releases.spawn(guard.release())));
    for released in releases.join_all().await {
        assert_eq!(released.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    proxy.set(Mood::Honest);
    drained(&client).await;
    assert_eq!(locks(&redis), 0, "the releases are made good");
    proxy.set(Mood::DropReplies);
    for outcome in try_all(&client, &names).await {
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    proxy.set(Mood::Honest);
    drained(&client).await;
    assert_eq!(locks(&redis), 0, "what was granted unheard is undone");
    for outcome in try_all(&other, &names).await {
        outcome.unwrap().unwrap().release().await.unwrap();
    }
}

/// Callers go at any moment, whether their requests wait for others or are under way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_goes_while_others_stay_leaves_nothing() {
    let redis = Redis::start().unwrap();
    let proxy = Proxy::before(redis.address()).unwrap();
    let client = client(&format!("redis://127.0.0.1:{}", proxy.port())).await;
    client.acquire("warm").await.unwrap().release().await.unwrap();
    proxy.set(Mood::DelayRequests(Duration::from_millis(3)));
    for round in 0..30 {
        let mut tries = JoinSet::new();
        for at in 0..32 {
            let lock = client.named(&format!("{round}/{at}")).ttl(TTL);
            let patience = if at % 2 == 0 { SLACK } else { Duration::from_micros(fastrand::u64(0..8_000)) };
            tries.spawn(async move { (at, tokio::time::timeout(patience, lock.acquire()).await) });
        }
        for (at, outcome) in tries.join_all().await {
            match outcome {
                Ok(guard) => guard.unwrap().release().await.unwrap(),
                Err(_) => assert_eq!(at % 2, 1, "one that stayed was not served"),
            }
        }
    }
    drained(&client).await;
    assert_eq!(locks(&redis), 0);
}

/// Memory is short: what would take some is refused, and what gives some back is done in the same moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_that_is_short_refuses_acquires_beside_releases() {
    let redis = Redis::start().unwrap();
    let client = client(&url(&redis)).await;
    let (held, wanted) = (names(40), (40..80).map(|at| format!("lock {at}")).collect::<Vec<_>>());
    let guards: Vec<_> = try_all(&client, &held).await.into_iter().map(|guard| guard.unwrap().unwrap()).collect();
    redis.command(&["CONFIG", "SET", "maxmemory", "100000"]).unwrap();
    let mut releases = JoinSet::new();
    guards.into_iter().for_each(|guard| drop(releases.spawn(guard.release())));
    for outcome in try_all(&client, &wanted).await {
        let e = outcome.unwrap_err();
        assert!(e.kind() == ErrorKind::Unavailable && e.message().contains("maxmemory"), "{e}");
    }
    assert!(releases.join_all().await.into_iter().all(|released| released.is_ok()));
    redis.command(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    drained(&client).await;
    assert_eq!(locks(&redis), 0);
}

/// The server forgets the scripts while many travel together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_that_are_flushed_are_sent_again_for_all() {
    let redis = Redis::start().unwrap();
    let client = client(&url(&redis)).await;
    for _ in 0..40 {
        redis.command(&["SCRIPT", "FLUSH"]).unwrap();
        for outcome in try_all(&client, &names(32)).await {
            drop(outcome.unwrap().unwrap());
        }
        until("released", SLACK, || locks(&redis) == 0).await;
    }
}

/// Within one client a handover is the release and the next one's acquire, and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handover_within_a_client_costs_release_and_acquire() {
    const HANDOVERS: u64 = 200;
    let redis = Redis::start().unwrap();
    let client = client(&url(&redis)).await;
    let first = client.named("hot").ttl(TTL).acquire().await.unwrap();
    let mut waits = JoinSet::new();
    for _ in 0..HANDOVERS {
        let lock = client.named("hot").ttl(TTL).wait_forever();
        waits.spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() });
    }
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let before = calls(&redis);
    first.release().await.unwrap();
    waits.join_all().await;
    let cost = calls(&redis) - before;
    println!("{HANDOVERS} handovers within a client: {cost} calls");
    // A waiter that comes up between a release and the lane's own word may ask once in vain.
    assert!(cost <= HANDOVERS * 2 + 1 + HANDOVERS / 20, "{cost} calls for {HANDOVERS} handovers");
}
