//! What an acquire, a release and a handover cost in round trips, through a wire that is slow and loses nothing.
//!
//! A machine that is busy makes a step longer and never shorter, so the shortest of several counts.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test")]
#![allow(clippy::print_stderr, reason = "what it found is worth reading")]

use fencelock::EngineUrl;
use fencelock::redlock::{RedlockConfig, RedlockOperator};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// There and back.
const TRIP: Duration = Duration::from_millis(60);
const LIMIT: Duration = Duration::from_secs(30);

/// A port that leads to `server`, half a round trip away; what is sent together travels together.
async fn wire(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(server) = TcpStream::connect(server).await else { continue };
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            let ((asks, hears), (answers, told)) = (client.into_split(), server.into_split());
            carry(asks, told);
            carry(answers, hears);
        }
    });
    port
}

fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    let (sent, mut travelling) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    tokio::spawn(async move {
        let mut part = vec![0; 16 * 1024];
        while let Ok(read @ 1..) = from.read(&mut part).await {
            if sent.send((Instant::now() + TRIP / 2, part.iter().take(read).copied().collect())).is_err() {
                return;
            }
        }
    });
    tokio::spawn(async move {
        while let Some((arrives, part)) = travelling.recv().await {
            sleep_until(arrives).await;
            if to.write_all(&part).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    });
}

/// The round trips of an acquire, of a release, and from a release to the grant of another client.
struct Trips {
    acquire: f64,
    release: f64,
    handover: f64,
}

/// The fewest of several times, of a known name and with connections that are open.
async fn trips(engine: &str, url: &str) -> Trips {
    let (one, two) = (fencelock::connect(url).await.unwrap(), fencelock::connect(url).await.unwrap());
    let mut least = Trips { acquire: f64::MAX, release: f64::MAX, handover: f64::MAX };
    let in_trips = |time: Duration| time.as_secs_f64() / TRIP.as_secs_f64();
    for locks in [&one, &two] {
        locks.acquire("a").await.unwrap().release().await.unwrap();
    }
    for _ in 0..5 {
        let started = Instant::now();
        let guard = one.named("a").ttl(LIMIT).acquire().await.unwrap();
        least.acquire = least.acquire.min(in_trips(started.elapsed()));
        let started = Instant::now();
        guard.release().await.unwrap();
        least.release = least.release.min(in_trips(started.elapsed()));
    }
    for _ in 0..5 {
        let guard = one.named("a").ttl(LIMIT).acquire().await.unwrap();
        let lock = two.named("a").ttl(LIMIT).wait_at_most(LIMIT);
        let waiting = tokio::spawn(async move { (lock.acquire().await.unwrap(), Instant::now()) });
        // It has found the lock held, and has made itself known by then.
        sleep(TRIP * 10).await;
        let started = Instant::now();
        guard.release().await.unwrap();
        let (next, granted) = timeout(LIMIT, waiting).await.unwrap().unwrap();
        least.handover = least.handover.min(in_trips(granted - started));
        next.release().await.unwrap();
    }
    let Trips { acquire, release, handover } = least;
    eprintln!("{engine}: acquire {acquire:.2}, release {release:.2}, handover {handover:.2} round trips");
    least
}

/// `most` is of a handover: nothing is promised where waiters look by themselves.
fn at_most(engine: &str, found: &Trips, acquire: f64, release: f64, most: Option<f64>) {
    // Half a round trip for all that is no wire.
    let within = |found: f64, most: f64| found < most + 0.5;
    assert!(within(found.acquire, acquire), "{engine}: an acquire took {:.2} round trips", found.acquire);
    assert!(within(found.release, release), "{engine}: a release took {:.2} round trips", found.release);
    assert!(most.is_none_or(|most| within(found.handover, most)), "{engine}: {:.2} to the next", found.handover);
    // A wire that carries nothing late would show nothing.
    assert!(found.acquire >= acquire && found.release >= 1.0, "{engine}: faster than the wire");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis() {
    let server = fencelock_lab::Redis::start().unwrap();
    let url = format!("redis://{}", wire(server.address()).await);
    at_most("redis", &trips("redis", &url).await, 1.0, 1.0, Some(1.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redlock() {
    let nodes = fencelock_lab::RedisNodes::start(3).unwrap();
    let mut wired = Vec::new();
    for node in nodes.addresses().split(',') {
        wired.push(wire(node.parse().unwrap()).await.to_string());
    }
    let url = format!("redlock://{}?request_timeout=1s", wired.join(","));
    let config = RedlockConfig::from_url(&EngineUrl::parse(&url).unwrap()).unwrap();
    RedlockOperator::new(config).unwrap().init(0).await.unwrap();
    // Whoever is told acquires, and that is two: the second round is for the token.
    at_most("redlock", &trips("redlock", &url).await, 2.0, 1.0, Some(3.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd() {
    let server = fencelock_lab::Etcd::start().unwrap();
    let url = format!("etcd://{}", wire(server.endpoint(0).unwrap()).await);
    at_most("etcd", &trips("etcd", &url).await, 1.0, 1.0, Some(2.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zookeeper() {
    let server = fencelock_lab::ZooKeeper::start().unwrap();
    let url = format!("zookeeper://{}?session=40s", wire(server.address()).await);
    at_most("zookeeper", &trips("zookeeper", &url).await, 1.0, 1.0, Some(2.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres() {
    let server = fencelock_lab::Postgres::start().unwrap();
    let near = server.address();
    let url = server.url().replace(&near.to_string(), &wire(near).await.to_string());
    at_most("postgres", &trips("postgres", &url).await, 1.0, 1.0, Some(2.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql() {
    let server = fencelock_lab::MariaDb::start().unwrap();
    let near = server.address();
    let url = server.url().replace(&near.to_string(), &wire(near).await.to_string());
    at_most("mysql", &trips("mysql", &url).await, 1.0, 1.0, None);
}
