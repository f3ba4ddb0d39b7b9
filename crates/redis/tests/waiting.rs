//! What waiting costs, and how soon it ends.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    missing_docs,
    reason = "a test"
)]

mod common;

use common::{SLACK, builder, client, connections, drained, queued, sent, total, until, url};
use fencelock_core::LockClient;
use fencelock_lab::{Proxy, Redis};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

fn wait(clients: &[LockClient], waiters: usize, name: &str) -> JoinSet<()> {
    let mut waits = JoinSet::new();
    for client in clients.iter().cycle().take(waiters) {
        let lock = client.named(name).wait_forever();
        waits.spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() });
    }
    waits
}

/// The holder is not counted: it is one that renews nothing.
async fn cost_of_waiting(clients: usize, most: u64) {
    let redis = Redis::start().unwrap();
    let holder = client(&url(&redis)).await;
    let guard = holder.named("hot").ttl(Duration::from_secs(60)).auto_renew(false).acquire().await.unwrap();
    let mut waiting = Vec::new();
    for _ in 0..clients {
        waiting.push(client(&url(&redis)).await);
    }
    let mut waits = wait(&waiting, 100, "hot");
    until("each client is in the queue", SLACK, || queued(&redis, "hot") == clients).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = sent(&redis);
    tokio::time::sleep(Duration::from_secs(20)).await;
    let after = sent(&redis);
    let cost = total(&after) - total(&before);
    println!("100 waiters of {clients} clients for 20 s: {cost} commands");
    assert!(cost <= most, "{cost} commands: {before:?} {after:?}");
    let started = Instant::now();
    guard.release().await.unwrap();
    while let Some(done) = waits.join_next().await {
        done.unwrap();
    }
    println!("100 handovers to waiters of {clients} clients in {:?}", started.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_waiters_of_one_client_cost_ten_commands() {
    cost_of_waiting(1, 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_waiters_of_ten_clients_cost_eighty_commands() {
    cost_of_waiting(10, 80).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_waiters_share_one_connection_and_leave_nothing() {
    let redis = Redis::start().unwrap();
    let (holder, waiter) = (client(&url(&redis)).await, client(&url(&redis)).await);
    let mut guards = Vec::new();
    for at in 0..1_000 {
        let name = format!("lock {at}");
        guards.push(holder.named(&name).ttl(Duration::from_secs(120)).auto_renew(false).acquire().await.unwrap());
    }
    let mut waits = JoinSet::new();
    for at in 0..1_000 {
        waits.extend_with(wait(std::slice::from_ref(&waiter), 1, &format!("lock {at}")));
    }
    let queues = || redis.command(&["EVAL", "return #redis.call('keys', '*:wait:*')", "0"]).unwrap();
    until("a thousand queues", SLACK * 4, || queues() == ":1000\r\n").await;
    assert_eq!(connections(&redis), 2, "one a client");
    assert!(redis.command(&["PUBSUB", "CHANNELS"]).unwrap().starts_with("*1\r\n"), "one a client");
    // Half are served, the other half give up.
    for guard in guards.drain(..500) {
        guard.release().await.unwrap();
    }
    for _ in 0..500 {
        tokio::time::timeout(SLACK * 4, waits.join_next()).await.unwrap().unwrap().unwrap();
    }
    waits.abort_all();
    while waits.join_next().await.is_some() {}
    drained(&waiter).await;
    until("no queue is left", SLACK * 2, || queues() == ":0\r\n").await;
    for guard in guards {
        guard.release().await.unwrap();
    }
}

trait ExtendWith {
    fn extend_with(&mut self, more: JoinSet<()>);
}

impl ExtendWith for JoinSet<()> {
    fn extend_with(&mut self, mut more: JoinSet<()>) {
        self.spawn(async move { while more.join_next().await.is_some() {} });
    }
}

/// A message that is lost costs at most the safety check, not the ttl.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_message_costs_one_safety_check() {
    let redis = Redis::start().unwrap();
    let (holder, waiter) = (client(&url(&redis)).await, client(&url(&redis)).await);
    let guard = holder.named("a").ttl(Duration::from_secs(120)).acquire().await.unwrap();
    let mut waits = wait(std::slice::from_ref(&waiter), 1, "a");
    until("it is in the queue", SLACK, || queued(&redis, "a") == 1).await;
    // Freed behind its back: nothing is published.
    let keys = redis.command(&["KEYS", "*:lock:a"]).unwrap();
    let key = keys.lines().nth(2).unwrap().to_owned();
    let started = Instant::now();
    redis.command(&["DEL", &key]).unwrap();
    tokio::time::timeout(Duration::from_secs(5) + SLACK, waits.join_next()).await.unwrap().unwrap().unwrap();
    println!("a lost message cost {:?}", started.elapsed());
    drop(guard);
}

/// The connection is cut while many wait; what is released afterwards is heard at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_are_subscribed_again_after_a_cut() {
    let redis = Redis::start().unwrap();
    let proxy = Proxy::before(redis.address()).unwrap();
    let holder = client(&url(&redis)).await;
    let waiter = client(&format!("redis://127.0.0.1:{}", proxy.port())).await;
    let ttl = Duration::from_secs(120);
    let (one, two) =
        (holder.named("1").ttl(ttl).acquire().await.unwrap(), holder.named("2").ttl(ttl).acquire().await.unwrap());
    let mut first = wait(std::slice::from_ref(&waiter), 1, "1");
    let mut second = wait(std::slice::from_ref(&waiter), 1, "2");
    until("they are in the queue", SLACK, || queued(&redis, "1") == 1 && queued(&redis, "2") == 1).await;
    for _ in 0..3 {
        proxy.cut();
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    let channels = || redis.command(&["PUBSUB", "CHANNELS"]).unwrap().matches(":to:").count();
    until("subscribed again", SLACK, || channels() == 1).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let started = Instant::now();
    one.release().await.unwrap();
    first.join_next().await.unwrap().unwrap();
    // The safety check would come within 5 s of the last look, which was at the subscription.
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    two.release().await.unwrap();
    second.join_next().await.unwrap().unwrap();
}

/// Through a wire of 100 ms each way: the release hands it on, and the message tells the other client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_reaches_another_client_within_one_round_trip() {
    const TRIP: Duration = Duration::from_millis(200);
    let redis = Redis::start().unwrap();
    let proxy = Proxy::before(redis.address()).unwrap();
    // Requests wait for the whole trip and answers for none, which comes to the same.
    proxy.set(fencelock_lab::Mood::DelayRequests(TRIP));
    let url = format!("redis://127.0.0.1:{}", proxy.port());
    let holder = builder(&url).await.unwrap().build().unwrap();
    let waiter = client(&url).await;
    let mut best = Duration::MAX;
    // On a busy machine one that is told in time is enough.
    for _ in 0..12 {
        let guard = holder.named("a").ttl(Duration::from_secs(60)).acquire().await.unwrap();
        let lock = waiter.named("a").ttl(Duration::from_secs(60));
        let wait = tokio::spawn(async move { (lock.acquire().await.unwrap(), Instant::now()) });
        until("it is in the queue", SLACK, || queued(&redis, "a") == 1).await;
        tokio::time::sleep(TRIP).await;
        let sent = Instant::now();
        guard.release().await.unwrap();
        let (next, at) = wait.await.unwrap();
        best = best.min(at - sent);
        next.release().await.unwrap();
        if best < TRIP + TRIP / 2 {
            break;
        }
    }
    println!("release to grant in another client: {best:?}, with a round trip of {TRIP:?}");
    assert!(best < TRIP + TRIP / 2, "{best:?}");
}
