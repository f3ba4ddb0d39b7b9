//! Renewals of one client, together.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs, reason = "a test")]

mod common;

use common::{SLACK, client, renewed, sent, until, url};
use fencelock_lab::{Mood, Proxy, Redis};
use std::time::{Duration, Instant};

fn scripts(redis: &Redis) -> u64 {
    sent(redis).get("evalsha").copied().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_holds_cost_a_command_for_each_256_and_interval() {
    const HOLDS: u64 = 1_000;
    let redis = Redis::start().unwrap();
    let client = client(&url(&redis)).await;
    let ttl = Duration::from_secs(6);
    let mut guards = Vec::new();
    for at in 0..HOLDS {
        guards.push(client.named(&format!("{at}")).ttl(ttl).acquire().await.unwrap());
    }
    // The first interval is over, in which they fall into step.
    tokio::time::sleep(ttl / 2).await;
    let (before, started) = (scripts(&redis), Instant::now());
    tokio::time::sleep(ttl * 2).await;
    let cost = scripts(&redis) - before;
    let intervals = u64::try_from(started.elapsed().as_millis().div_ceil((ttl / 3).as_millis())).unwrap();
    println!("{HOLDS} holds for {intervals} intervals: {cost} commands");
    assert!(guards.iter().all(|guard| guard.is_held()));
    assert!(cost <= (HOLDS.div_ceil(256) + 1) * (intervals + 1), "{cost} commands in {intervals} intervals");
    assert!(cost >= HOLDS / 256 * (intervals - 1), "{cost} commands cannot have renewed them");
    // When nobody is left, nothing is sent.
    for guard in guards {
        guard.release().await.unwrap();
    }
    let before = scripts(&redis);
    tokio::time::sleep(ttl / 2).await;
    assert_eq!(scripts(&redis), before);
}

/// Acquired one after the other over a whole interval, they are renewed together all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_that_are_spread_fall_into_step() {
    const HOLDS: u32 = 200;
    let redis = Redis::start().unwrap();
    let client = client(&url(&redis)).await;
    let ttl = Duration::from_millis(8_100);
    let mut guards = Vec::new();
    for at in 0..HOLDS {
        guards.push(client.named(&format!("{at}")).ttl(ttl).acquire().await.unwrap());
        tokio::time::sleep(ttl / 3 / HOLDS).await;
    }
    tokio::time::sleep(ttl / 3 + ttl / 10).await;
    let (before, started) = (scripts(&redis), Instant::now());
    tokio::time::sleep(ttl).await;
    let cost = scripts(&redis) - before;
    let intervals = u64::try_from(started.elapsed().as_millis() / (ttl / 3).as_millis()).unwrap();
    println!("{HOLDS} holds acquired over an interval, {intervals} intervals later: {cost} commands");
    // On a busy machine some come too late for the others; out of step it would be one for each hold.
    assert!(cost <= (intervals + 1) * 3, "{cost} commands in {intervals} intervals");
    assert!(guards.iter().all(|guard| guard.is_held()));
}

/// The machine was suspended: timers stood still, and what is due by the clock leaves at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_are_due_by_a_clock_that_counts_suspended_time() {
    let redis = Redis::start().unwrap();
    let fake = fencelock_core::FakeClock::new();
    let client = common::builder(&url(&redis)).await.unwrap().clock(fake.clock()).build().unwrap();
    let ttl = Duration::from_secs(30);
    let guard = client.named("a").ttl(ttl).acquire().await.unwrap();
    // The first renewal is the guardian's to begin; from then on it is the batch's.
    fake.suspend(ttl / 3);
    until("renewed", SLACK, || scripts(&redis) + 1 >= 2).await;
    until("renewed", SLACK, || guard.remaining() > ttl * 9 / 10).await;
    let before = scripts(&redis);
    tokio::time::sleep(Duration::from_millis(300)).await;
    fake.suspend(ttl / 3 + ttl / 10);
    until("renewed after a suspend", SLACK, || scripts(&redis) > before && guard.remaining() > ttl * 9 / 10).await;
    guard.release().await.unwrap();
}

/// Of a batch, one hold was taken away: it is told, and the others are renewed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_lost_hold_costs_the_others_nothing() {
    let redis = Redis::start().unwrap();
    let (client, other) = (client(&url(&redis)).await, client(&url(&redis)).await);
    let ttl = Duration::from_secs(5);
    let mut guards = Vec::new();
    for at in 0..50 {
        guards.push(client.named(&format!("{at}")).ttl(ttl).acquire().await.unwrap());
    }
    assert!(other.force_release("7").await.unwrap());
    until("it is told", ttl + SLACK, || !guards[7].is_held()).await;
    renewed(guards.iter().enumerate().filter(|(at, _)| *at != 7).map(|(_, guard)| guard)).await;
    let held = guards.iter().filter(|guard| guard.is_held()).count();
    assert_eq!(held, 49);
}

/// Again and again everything stands still for longer than a request may take; what is asked again comes in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_hangs_holds_up_no_other() {
    let redis = Redis::start().unwrap();
    let proxy = Proxy::before(redis.address()).unwrap();
    let client = client(&format!("redis://127.0.0.1:{}", proxy.port())).await;
    let (short, long) = (Duration::from_secs(6), Duration::from_secs(12));
    let mut guards = Vec::new();
    for at in 0..300 {
        guards.push(client.named(&format!("short {at}")).ttl(short).acquire().await.unwrap());
        guards.push(client.named(&format!("long {at}")).ttl(long).acquire().await.unwrap());
    }
    for _ in 0..3 {
        proxy.set(Mood::Hold);
        tokio::time::sleep(short * 3 / 10).await;
        proxy.set(Mood::Honest);
        tokio::time::sleep(short / 2).await;
    }
    let held = guards.iter().filter(|guard| guard.is_held()).count();
    assert_eq!(held, guards.len());
    for guard in guards {
        guard.release().await.unwrap();
    }
}

/// Gives the hold under `key` the next token.
fn taken_anew(redis: &Redis, key: &str) {
    let script = "local id, token, rest = redis.call('get', KEYS[1]):match('^(%x+ )(%d+)(.*)$') \
                  return redis.call('set', KEYS[1], id .. string.format('%.0f', token + 1) .. rest, 'KEEPTTL')";
    assert_eq!(redis.command(&["EVAL", script, "1", key]).unwrap(), "+OK\r\n");
}

/// The hold is gone, another may have had the lock, and then a late copy of the
/// acquire takes it again under the same id: that is not the hold that is renewed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_taken_anew_by_a_late_copy_is_not_renewed() {
    let redis = Redis::start().unwrap();
    let client = client(&url(&redis)).await;
    let ttl = Duration::from_secs(5);
    let guard = client.named("a").ttl(ttl).acquire().await.unwrap();
    let key = redis.command(&["KEYS", "*:lock:a"]).unwrap().lines().nth(2).unwrap().to_owned();
    taken_anew(&redis, &key);
    let reason = tokio::time::timeout(ttl + SLACK, guard.lost()).await.unwrap();
    assert_eq!(reason, fencelock_core::LossReason::Revoked);

    // Nor is releasing it a success; and what the copy took is not left behind.
    let guard = client.named("b").ttl(Duration::from_secs(60)).acquire().await.unwrap();
    let key = redis.command(&["KEYS", "*:lock:b"]).unwrap().lines().nth(2).unwrap().to_owned();
    taken_anew(&redis, &key);
    assert_eq!(guard.release().await.unwrap_err().kind(), fencelock_core::ErrorKind::Lost);
    assert_eq!(redis.command(&["EXISTS", &key]).unwrap(), ":0\r\n");
}
