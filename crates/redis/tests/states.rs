//! A server that is there and will not: each of its answers, and how the client lives through it.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test")]

mod common;

use common::{SLACK, client, drained, engine, locks, until, url};
use fencelock_core::{Attempt, DistributedLock, ErrorKind, LockClient, LockName, LossReason, Terms};
use fencelock_lab::Redis;
use std::time::{Duration, Instant};

const TTL: Duration = Duration::from_millis(900);

fn quick(redis: &Redis) -> String {
    format!("{}?request_timeout=1500ms&connect_timeout=1500ms", url(redis))
}

/// Tries until the answer says `what`; each one within its bound.
async fn told(client: &LockClient, what: &str) -> ErrorKind {
    let started = Instant::now();
    loop {
        let tried = Instant::now();
        let outcome = client.named("tried").ttl(TTL).try_acquire().await;
        assert!(tried.elapsed() < Duration::from_millis(1_500) + SLACK, "{:?}", tried.elapsed());
        match outcome {
            Err(e) if e.message().contains(what) => return e.kind(),
            Ok(Some(guard)) => drop(guard),
            Ok(None) | Err(_) => {}
        }
        assert!(started.elapsed() < SLACK * 4, "never told: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn usable(client: &LockClient) {
    let guard = client.named("usable").ttl(SLACK).wait_at_most(SLACK * 4).acquire().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loading_is_waited_out_and_keeps_what_it_loads() {
    let redis = Redis::start_with(["--save", "", "--loading-process-events-interval-bytes", "1024"]).unwrap();
    let client = client(&quick(&redis)).await;
    let guard = client.named("a").ttl(Duration::from_secs(30)).acquire().await.unwrap();
    redis.command(&["DEBUG", "POPULATE", "10000", "filler", "100"]).unwrap();
    redis.command(&["CONFIG", "SET", "key-load-delay", "300"]).unwrap();
    let address = redis.address();
    let reload = std::thread::spawn(move || fencelock_lab_command(address, &["DEBUG", "RELOAD"]));
    assert_eq!(told(&client, "loading").await, ErrorKind::Unavailable);
    reload.join().unwrap();
    usable(&client).await;
    assert!(guard.is_held());
    assert!(client.try_acquire("a").await.unwrap().is_none());
    guard.release().await.unwrap();
}

/// Sends a command that takes long, and waits for nothing but its being sent.
fn fencelock_lab_command(address: std::net::SocketAddr, words: &[&str]) {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SLACK * 4)).unwrap();
    let line = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect::<String>();
    stream.write_all(format!("*{}\r\n{line}", words.len()).as_bytes()).unwrap();
    let _ = stream.read(&mut [0; 64]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_that_does_not_end_is_told_as_busy() {
    let redis = Redis::start().unwrap();
    let client = client(&quick(&redis)).await;
    let guard = client.named("a").ttl(TTL).acquire().await.unwrap();
    redis.command(&["CONFIG", "SET", "lua-time-limit", "50"]).unwrap();
    let address = redis.address();
    let spinning = std::thread::spawn(move || fencelock_lab_command(address, &["EVAL", "while true do end", "0"]));
    assert_eq!(told(&client, "another script").await, ErrorKind::Unavailable);
    assert_eq!(tokio::time::timeout(TTL + SLACK, guard.lost()).await.unwrap(), LossReason::Expired);
    assert_eq!(redis.command(&["SCRIPT", "KILL"]).unwrap(), "+OK\r\n");
    spinning.join().unwrap();
    usable(&client).await;
    drop(guard);
    drained(&client).await;
    until("no orphan", TTL + SLACK, || locks(&redis) == 0).await;
}

/// The disk is full, as far as Redis can tell.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_cannot_be_written_is_told_as_misconf() {
    let redis = Redis::start().unwrap();
    let client = client(&quick(&redis)).await;
    let (kept, lost) = (client.named("kept").ttl(SLACK * 6).acquire(), client.named("lost").ttl(TTL).acquire());
    let (kept, lost) = (kept.await.unwrap(), lost.await.unwrap());
    let in_the_way = redis.server().folder().join("dump.rdb");
    std::fs::create_dir(&in_the_way).unwrap();
    redis.command(&["CONFIG", "SET", "save", "3600 1"]).unwrap();
    redis.command(&["BGSAVE"]).unwrap();
    assert_eq!(told(&client, "MISCONF").await, ErrorKind::Unavailable);
    // Renewing and releasing are writes too.
    assert_eq!(tokio::time::timeout(TTL + SLACK, lost.lost()).await.unwrap(), LossReason::Expired);
    let e = kept.release().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    std::fs::remove_dir(&in_the_way).unwrap();
    redis.command(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]).unwrap();
    usable(&client).await;
    drained(&client).await;
    until("what could not be released was", TTL + SLACK, || locks(&redis) == 0).await;
}

/// An id can be made dead where there is no memory, and a layout that cannot be written down keeps us out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_memory_ids_die_and_layouts_are_written_or_refused() {
    let redis = Redis::start_with(["--save", "", "--maxmemory-policy", "noeviction"]).unwrap();
    let here = engine(&quick(&redis)).await.unwrap();
    let name = LockName::new("a").unwrap();
    let (held, never) =
        (Terms::new(name.clone(), SLACK * 4).mint().unwrap(), Terms::new(name, SLACK * 4).mint().unwrap());
    let Attempt::Granted(grant) = here.try_acquire(&held).await.unwrap() else { unreachable!("a new name is free") };
    redis.command(&["CONFIG", "SET", "maxmemory", "1mb"]).unwrap();
    drop(held.request());
    drop(never.request());
    grant.lease.release().await.unwrap();
    here.abandon(&never).await.unwrap();
    let e = engine(&format!("{}&prefix=new", quick(&redis))).await.unwrap_err();
    assert!(e.kind() == ErrorKind::Unavailable && e.message().contains("maxmemory"), "{e}");
    assert!(engine(&quick(&redis)).await.is_ok(), "its layout was written before");
    redis.command(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    for dead in [held, never] {
        assert!(!matches!(here.try_acquire(&dead).await, Ok(Attempt::Granted(_))), "a dead id took the lock");
    }
    assert_eq!(locks(&redis), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_set_later_denies_and_its_end_lets_in() {
    let redis = Redis::start().unwrap();
    let client = client(&quick(&redis)).await;
    usable(&client).await;
    redis.command(&["CONFIG", "SET", "requirepass", "s3cret"]).unwrap();
    let open = std::net::TcpStream::connect(redis.address()).unwrap();
    drop(open);
    let kill = "*2\r\n$4\r\nAUTH\r\n$6\r\ns3cret\r\n*4\r\n$6\r\nCLIENT\r\n$4\r\nKILL\r\n$4\r\nTYPE\r\n$6\r\nnormal\r\n";
    let reset =
        "*2\r\n$4\r\nAUTH\r\n$6\r\ns3cret\r\n*4\r\n$6\r\nCONFIG\r\n$3\r\nSET\r\n$11\r\nrequirepass\r\n$0\r\n\r\n";
    raw(&redis, kill);
    assert_eq!(told(&client, "password").await, ErrorKind::Denied);
    let e = client.named("a").wait_at_most(SLACK * 4).acquire().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Denied, "waiting cannot mend it: {e}");
    raw(&redis, reset);
    let back = async {
        while client.try_acquire("back").await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(SLACK, back).await.unwrap();
    drained(&client).await;
}

fn raw(redis: &Redis, request: &str) {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(redis.address()).unwrap();
    stream.set_read_timeout(Some(SLACK)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = [0; 64];
    let read = stream.read(&mut answer).unwrap();
    assert!(answer.get(..read).unwrap().starts_with(b"+OK"));
}

/// Nothing that is asked outlasts its bound, however the server is silent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connecting_and_listing_are_bounded() {
    let redis = Redis::start().unwrap();
    let proxy = fencelock_lab::Proxy::before(redis.address()).unwrap();
    let client = client(&common::through(&proxy)).await;
    let _guard = client.acquire("a").await.unwrap();
    for mood in [fencelock_lab::Mood::DropReplies, fencelock_lab::Mood::DropRequests] {
        proxy.set(mood);
        let started = Instant::now();
        assert_eq!(client.list("").await.unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(engine(&common::through(&proxy)).await.unwrap_err().kind(), ErrorKind::Unavailable);
        assert!(started.elapsed() < Duration::from_secs(3) + SLACK / 2, "{:?}", started.elapsed());
    }
}
