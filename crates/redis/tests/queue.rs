//! The queue at the server: who frees a lock hands it on, and what becomes of it when nobody takes it.

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

use common::{SLACK, client, drained, sent, total, until, url};
use fencelock_core::{Attempt, DistributedLock as _, ErrorKind, LockClient, LockGuard, LockName, Terms};
use fencelock_lab::{Mood, Proxy, Redis};
use libtest_mimic::{Arguments, Failed, Trial};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Far longer than any test: what is not handed on is not had by waiting either.
const LONG: Duration = Duration::from_secs(120);
/// No look comes so soon: those are made every 5 s.
const SOON: Duration = Duration::from_secs(3);

/// A process that waits for `a`, with a ttl of its own; ended when it is dropped.
struct Waiter(Child, PathBuf);

impl Waiter {
    fn start(url: &str, ttl: Duration, directory: &Path) -> Self {
        let log = directory.join("waiter");
        let child = Command::new(std::env::current_exe().unwrap())
            .env("FENCELOCK_WAITER", url)
            .env("FENCELOCK_WAITER_TTL", ttl.as_millis().to_string())
            .env("FENCELOCK_WAITER_LOG", &log)
            .spawn();
        Self(child.unwrap(), log)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// The token that it got.
    fn token(&self) -> Option<u64> {
        std::fs::read_to_string(&self.1).ok()?.trim().parse().ok()
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn be_a_waiter(url: &str, ttl: u64, log: &Path) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = client(url).await;
        let guard = client.named("a").ttl(Duration::from_millis(ttl)).wait_at_most(LONG).acquire().await.unwrap();
        if guard.is_held() {
            std::fs::write(log, guard.token().to_string()).unwrap();
        }
        let _ = guard.release().await;
        let _ = client.close().await;
    });
    ExitCode::SUCCESS
}

type Wait = JoinHandle<(LockGuard, Instant)>;

fn wait(client: &LockClient, ttl: Duration) -> Wait {
    let lock = client.named("a").ttl(ttl).wait_at_most(LONG);
    tokio::spawn(async move { (lock.acquire().await.unwrap(), Instant::now()) })
}

/// How many are in the queue of `a`.
fn queued(redis: &Redis) -> usize {
    common::queued(redis, "a")
}

async fn until_queued(redis: &Redis, number: usize) {
    until("they are in the queue", SLACK, || queued(redis) == number).await;
}

async fn hold(client: &LockClient) -> LockGuard {
    client.named("a").ttl(LONG).acquire().await.unwrap()
}

async fn soon(wait: Wait, since: Instant) -> LockGuard {
    let (guard, at) = tokio::time::timeout(LONG, wait).await.unwrap().unwrap();
    assert!(at - since < SOON, "{:?}: not handed on, but found", at - since);
    guard
}

fn through(proxy: &Proxy) -> String {
    format!("redis://127.0.0.1:{}", proxy.port())
}

async fn what_a_handover_between_clients_costs() {
    let redis = Redis::start().unwrap();
    let mut going = Vec::new();
    let end = Instant::now() + Duration::from_secs(3);
    for _ in 0..8 {
        let lock = client(&url(&redis)).await.named("a").ttl(Duration::from_secs(10)).wait_forever();
        going.push(tokio::spawn(async move {
            let mut tokens = Vec::new();
            while Instant::now() < end {
                let guard = lock.acquire().await.unwrap();
                tokens.push(guard.token());
                guard.release().await.unwrap();
            }
            tokens
        }));
    }
    let before = total(&sent(&redis));
    let mut all = Vec::new();
    for tokens in going {
        let tokens = tokens.await.unwrap();
        assert!(tokens.is_sorted());
        assert!(tokens.len() > 10, "nobody is passed over: {}", tokens.len());
        all.extend(tokens);
    }
    let (commands, handovers) = (total(&sent(&redis)) - before, all.len());
    println!("8 clients: {handovers} handovers, {:.3} commands each", commands as f64 / handovers as f64);
    assert!(commands as f64 <= handovers as f64 * 2.2, "{commands} commands for {handovers} handovers");
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), handovers, "a token was given out twice");
    until("nothing is left", SLACK * 4, || redis.command(&["KEYS", "*:wait:*"]).unwrap().starts_with("*0")).await;
}

async fn a_killed_waiter_is_passed_over_at_once() {
    let (redis, directory) = (Redis::start().unwrap(), tempfile::tempdir().unwrap());
    let (holder, second) = (client(&url(&redis)).await, client(&url(&redis)).await);
    let guard = hold(&holder).await;
    let first = Waiter::start(&url(&redis), LONG, directory.path());
    until_queued(&redis, 1).await;
    let second = wait(&second, LONG);
    until_queued(&redis, 2).await;
    drop(first);
    let released = Instant::now();
    guard.release().await.unwrap();
    soon(second, released).await.release().await.unwrap();
}

async fn a_stopped_waiter_delays_others_by_its_lease_at_most() {
    const TTL: Duration = Duration::from_secs(2);
    let (redis, directory) = (Redis::start().unwrap(), tempfile::tempdir().unwrap());
    let (holder, second) = (client(&url(&redis)).await, client(&url(&redis)).await);
    let guard = hold(&holder).await;
    let first = Waiter::start(&url(&redis), TTL, directory.path());
    until_queued(&redis, 1).await;
    let second = wait(&second, LONG);
    until_queued(&redis, 2).await;
    first.signal(Signal::STOP);
    let (token, released) = (guard.token(), Instant::now());
    guard.release().await.unwrap();
    let (guard, at) = tokio::time::timeout(LONG, second).await.unwrap().unwrap();
    println!("a stopped waiter at the head: {:?}, with a ttl of {TTL:?}", at - released);
    assert!(at - released >= TTL - Duration::from_millis(50) && at - released < TTL + SOON);
    assert!(guard.token() > token);
    // What it was told meanwhile is long over.
    first.signal(Signal::CONT);
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(guard.is_held() && first.token().is_none(), "it believes what it was handed while it was stopped");
    let token = guard.token().get();
    guard.release().await.unwrap();
    until("it has its turn", SLACK * 2, || first.token().is_some()).await;
    assert!(first.token().unwrap() > token);
}

async fn whoever_gives_up_holds_nobody_up() {
    let redis = Redis::start().unwrap();
    let (holder, first, second) = (client(&url(&redis)).await, client(&url(&redis)).await, client(&url(&redis)).await);
    for _ in 0..150 {
        let guard = hold(&holder).await;
        let gone = wait(&first, LONG);
        until_queued(&redis, 1).await;
        let next = wait(&second, LONG);
        until_queued(&redis, 2).await;
        // Just before it is told, while it is, and after.
        let giving_up = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_micros(fastrand::u64(0..2_500))).await;
            gone.abort();
            drop(gone.await);
        });
        tokio::time::sleep(Duration::from_micros(fastrand::u64(0..1_500))).await;
        let released = Instant::now();
        guard.release().await.unwrap();
        soon(next, released).await.release().await.unwrap();
        giving_up.await.unwrap();
        drained(&first).await;
    }
    assert_eq!((queued(&redis), common::locks(&redis)), (0, 0));
}

/// A network that delivers twice puts a claim in the queue that was given up long ago.
async fn what_is_handed_to_nobody_is_given_back() {
    const LATE: Duration = Duration::from_secs(2);
    let redis = Redis::start().unwrap();
    let proxy = Proxy::before(redis.address()).unwrap();
    let (holder, first, second) =
        (client(&url(&redis)).await, client(&through(&proxy)).await, client(&url(&redis)).await);
    let guard = hold(&holder).await;
    proxy.set(Mood::RequestsTwice(LATE));
    let gone = wait(&first, LONG);
    until_queued(&redis, 1).await;
    proxy.set(Mood::Honest);
    gone.abort();
    drop(gone.await);
    drained(&first).await;
    assert_eq!(queued(&redis), 0, "it has left");
    until_queued(&redis, 1).await;
    tokio::time::sleep(LATE).await;
    let next = wait(&second, LONG);
    until_queued(&redis, 2).await;
    let (released, before) = (Instant::now(), guard.token());
    guard.release().await.unwrap();
    let guard = soon(next, released).await;
    assert!(guard.token() > before);
    guard.release().await.unwrap();
}

async fn what_was_not_heard_is_found() {
    let redis = Redis::start().unwrap();
    let proxy = Proxy::before(redis.address()).unwrap();
    let (holder, waiter) = (client(&url(&redis)).await, client(&through(&proxy)).await);
    for cut in [true, false] {
        let guard = hold(&holder).await;
        let next = wait(&waiter, LONG);
        until_queued(&redis, 1).await;
        proxy.set(Mood::DropReplies);
        guard.release().await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        let handed = holder.inspect("a").await.unwrap().unwrap();
        let lost = Instant::now();
        proxy.set(Mood::Honest);
        if cut {
            proxy.cut();
        }
        let (guard, at) = tokio::time::timeout(LONG, next).await.unwrap().unwrap();
        println!("a message that was not heard cost {:?}, cut: {cut}", at - lost);
        assert!(at - lost < if cut { SOON } else { Duration::from_secs(5) + SLACK });
        assert_eq!(guard.token(), handed.token, "the same hold");
        guard.release().await.unwrap();
    }
    // It is told again after that, on the connection that there is now.
    let guard = hold(&holder).await;
    let next = wait(&waiter, LONG);
    until_queued(&redis, 1).await;
    let released = Instant::now();
    guard.release().await.unwrap();
    soon(next, released).await.release().await.unwrap();
}

/// The lease began when the lock was handed over, and not when that was heard.
async fn a_message_that_is_late_is_believed_no_longer_for_it() {
    const TTL: Duration = Duration::from_secs(3);
    let redis = Redis::start().unwrap();
    let proxy = Proxy::before(redis.address()).unwrap();
    let (holder, waiter, other) =
        (client(&url(&redis)).await, client(&through(&proxy)).await, client(&url(&redis)).await);
    // Less than half of the ttl, so that it is not asked again, and more.
    for late in [1_050, 2_400].map(Duration::from_millis) {
        let guard = hold(&holder).await;
        let next = wait(&waiter, TTL);
        until_queued(&redis, 1).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        proxy.set(Mood::DelayReplies(late));
        let before = guard.token();
        guard.release().await.unwrap();
        // The message is on its way by now, and nothing after it is late.
        tokio::time::sleep(Duration::from_millis(100)).await;
        proxy.set(Mood::Honest);
        let (guard, _) = tokio::time::timeout(LONG, next).await.unwrap().unwrap();
        // From here on nothing is renewed.
        proxy.set(Mood::DropRequests);
        let (token, lock) = (guard.token(), other.named("a").ttl(TTL));
        assert!(token > before);
        let watching = tokio::spawn(async move {
            let mut last = None;
            while guard.is_held() {
                last = Some(Instant::now());
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            last.unwrap()
        });
        let taken = loop {
            let asked = Instant::now();
            if let Some(taken) = lock.try_acquire().await.unwrap() {
                break (taken, asked);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        let believed = watching.await.unwrap();
        println!(
            "late by {late:?}: believed until {:?} before another had it",
            taken.1.saturating_duration_since(believed)
        );
        assert!(believed <= Instant::now() && believed < taken.1 + Duration::from_millis(1), "two holders");
        assert!(taken.0.token() > token);
        taken.0.release().await.unwrap();
        proxy.set(Mood::Honest);
        drained(&waiter).await;
    }
}

/// A fixed lease loses nothing by having been waited for.
async fn a_fixed_lease_begins_when_it_is_had() {
    const TTL: Duration = Duration::from_secs(5);
    let redis = Redis::start().unwrap();
    let (holder, waiter) = (client(&url(&redis)).await, client(&url(&redis)).await);
    let guard = hold(&holder).await;
    let lock = waiter.named("a").ttl(TTL).auto_renew(false).wait_at_most(LONG);
    let next = tokio::spawn(async move { (lock.acquire().await.unwrap(), Instant::now()) });
    until_queued(&redis, 1).await;
    tokio::time::sleep(TTL * 3 / 5).await;
    guard.release().await.unwrap();
    let (guard, had) = next.await.unwrap();
    while guard.is_held() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // Without what it waited it would be two fifths.
    assert!(had.elapsed() > TTL * 3 / 5, "{:?}", had.elapsed());
}

async fn a_forced_release_hands_on_after_the_lock_delay() {
    const DELAY: Duration = Duration::from_millis(800);
    let redis = Redis::start().unwrap();
    let (holder, waiter) = (client(&url(&redis)).await, client(&url(&redis)).await);
    for delay in [Duration::ZERO, DELAY] {
        let guard = holder.named("a").ttl(LONG).lock_delay(delay).acquire().await.unwrap();
        let next = wait(&waiter, LONG);
        until_queued(&redis, 1).await;
        let forced = Instant::now();
        assert!(holder.force_release("a").await.unwrap());
        let (next, at) = tokio::time::timeout(LONG, next).await.unwrap().unwrap();
        assert!(at - forced >= delay && next.token() > guard.token());
        if delay.is_zero() {
            assert!(at - forced < SOON, "{:?}", at - forced);
        }
        next.release().await.unwrap();
        let _ = guard.release().await;
    }
}

/// Where it may not be asked who listens, they wait for a message to all of them.
async fn without_the_permission_nobody_queues() {
    for missing in ["-pubsub|numsub", "-hdel", "-hset"] {
        let redis = Redis::start().unwrap();
        let permit = |missing| {
            let words = ["ACL", "SETUSER", "app", "on", ">p", "~*", "&*", "+@all", missing];
            assert_eq!(redis.command(&words).unwrap(), "+OK\r\n");
        };
        permit("+hset");
        let at = format!("redis://app:p@{}", redis.address());
        let (holder, waiter) = (client(&at).await, client(&at).await);
        let guard = hold(&holder).await;
        permit(missing);
        let next = wait(&waiter, LONG);
        let listens = || redis.command(&["PUBSUB", "CHANNELS"]).unwrap().contains(":lock:");
        until("it listens", SLACK, listens).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(queued(&redis), 0);
        permit("+hset");
        let released = Instant::now();
        guard.release().await.unwrap();
        soon(next, released).await.release().await.unwrap();
    }
}

/// Whoever was not let in once asks for a place again.
async fn who_may_queue_later_does() {
    let redis = Redis::start().unwrap();
    let permit = |what| {
        let words = ["ACL", "SETUSER", "app", "on", ">p", "~*", "&*", "+@all", what];
        assert_eq!(redis.command(&words).unwrap(), "+OK\r\n");
    };
    permit("-hdel");
    let at = format!("redis://app:p@{}", redis.address());
    let (holder, waiter) = (client(&at).await, client(&at).await);
    let guard = hold(&holder).await;
    let next = wait(&waiter, LONG);
    let listens = || redis.command(&["PUBSUB", "CHANNELS"]).unwrap().contains(":lock:");
    until("it listens", SLACK, listens).await;
    permit("+hdel");
    until("it is in the queue", SLACK * 4, || queued(&redis) == 1).await;
    let released = Instant::now();
    guard.release().await.unwrap();
    soon(next, released).await.release().await.unwrap();
}

/// A release that cannot make its id dead says so, and hands the lock on all the same.
async fn what_may_kill_no_id_hands_on() {
    let redis = Redis::start().unwrap();
    redis.command(&["ACL", "SETUSER", "app", "on", ">p", "~*", "&*", "+@all", "-zadd"]).unwrap();
    let at = format!("redis://app:p@{}", redis.address());
    let (engine, waiter) = (common::engine(&at).await.unwrap(), client(&at).await);
    let claim = Terms::new(LockName::new("a").unwrap(), LONG).mint().unwrap();
    let Attempt::Granted(grant) = engine.try_acquire(&claim).await.unwrap() else { panic!("it is free") };
    let next = wait(&waiter, LONG);
    until("it is in the queue", SLACK, || queued(&redis) == 1).await;
    // Something of the claim may still arrive.
    drop(claim.request());
    let released = Instant::now();
    assert_eq!(grant.lease.release().await.unwrap_err().kind(), ErrorKind::Denied);
    soon(next, released).await.release().await.unwrap();
}

/// However many gave up between two that wait, the second is handed the lock by the first.
async fn gaps_of_those_who_gave_up_are_passed_by() {
    let redis = Redis::start().unwrap();
    let (holder, patient, late) = (client(&url(&redis)).await, client(&url(&redis)).await, client(&url(&redis)).await);
    let guard = hold(&holder).await;
    let first = wait(&patient, LONG);
    until_queued(&redis, 1).await;
    let keys = redis.command(&["KEYS", "*:wait:a"]).unwrap();
    redis.command(&["HSET", keys.lines().nth(2).unwrap(), "last", "5000"]).unwrap();
    let second = wait(&late, LONG);
    until_queued(&redis, 2).await;
    let released = Instant::now();
    guard.release().await.unwrap();
    let guard = soon(first, released).await;
    let released = Instant::now();
    guard.release().await.unwrap();
    soon(second, released).await.release().await.unwrap();
}

fn trial<F: Future<Output = ()> + Send + 'static>(name: &str, test: fn() -> F) -> Trial {
    Trial::test(name, move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.map_err(Failed::from)?.block_on(test());
        Ok(())
    })
}

fn main() -> ExitCode {
    if let (Ok(url), Ok(ttl), Ok(log)) = (
        std::env::var("FENCELOCK_WAITER"),
        std::env::var("FENCELOCK_WAITER_TTL"),
        std::env::var("FENCELOCK_WAITER_LOG"),
    ) {
        return be_a_waiter(&url, ttl.parse().unwrap(), Path::new(&log));
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(1);
    let trials = vec![
        trial("what_a_handover_between_clients_costs", what_a_handover_between_clients_costs),
        trial("a_killed_waiter_is_passed_over_at_once", a_killed_waiter_is_passed_over_at_once),
        trial(
            "a_stopped_waiter_delays_others_by_its_lease_at_most",
            a_stopped_waiter_delays_others_by_its_lease_at_most,
        ),
        trial("whoever_gives_up_holds_nobody_up", whoever_gives_up_holds_nobody_up),
        trial("what_is_handed_to_nobody_is_given_back", what_is_handed_to_nobody_is_given_back),
        trial("what_was_not_heard_is_found", what_was_not_heard_is_found),
        trial(
            "a_message_that_is_late_is_believed_no_longer_for_it",
            a_message_that_is_late_is_believed_no_longer_for_it,
        ),
        trial("a_fixed_lease_begins_when_it_is_had", a_fixed_lease_begins_when_it_is_had),
        trial("a_forced_release_hands_on_after_the_lock_delay", a_forced_release_hands_on_after_the_lock_delay),
        trial("without_the_permission_nobody_queues", without_the_permission_nobody_queues),
        trial("who_may_queue_later_does", who_may_queue_later_does),
        trial("what_may_kill_no_id_hands_on", what_may_kill_no_id_hands_on),
        trial("gaps_of_those_who_gave_up_are_passed_by", gaps_of_those_who_gave_up_are_passed_by),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}
