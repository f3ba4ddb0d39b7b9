//! What an acquire, a release and a handover cost in round trips, through a wire that is slow and loses nothing.
//!
//! A machine that is busy makes a step longer and never shorter, so the shortest of several counts.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs, reason = "a test")]
#![allow(clippy::print_stderr, reason = "what it found is worth reading")]

use fencelock::redlock::{RedlockConfig, RedlockOperator};
use fencelock::{EngineUrl, LockClient};
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
/// At most, of which a quiet machine needs two.
const ROUNDS: usize = 20;

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
    /// The first of a client, of a name that the service knows.
    cold: f64,
    /// Of a name that the service does not know.
    new: f64,
    /// Of a name that other clients have had since this one had it.
    after_others: f64,
    acquire: f64,
    release: f64,
    handover: f64,
}

/// No more than these; no handover where waiters look by themselves, of which nothing is promised.
struct Most {
    cold: f64,
    new: f64,
    after_others: f64,
    acquire: f64,
    handover: Option<f64>,
}

impl Most {
    /// What took more, with half a round trip for all that is no wire.
    fn over(&self, found: &Trips) -> Vec<String> {
        let all = [
            ("the first acquire", found.cold, Some(self.cold)),
            ("an acquire of a new name", found.new, Some(self.new)),
            ("an acquire after others", found.after_others, Some(self.after_others)),
            ("an acquire", found.acquire, Some(self.acquire)),
            ("a release", found.release, Some(1.0)),
            ("from a release to the next", found.handover, self.handover),
        ];
        let over = all.into_iter().filter(|(_, found, most)| most.is_some_and(|most| *found >= most + 0.5));
        over.map(|(what, found, _)| format!("{what} took {found:.2} round trips")).collect()
    }
}

/// Of a known name and with connections that are open, unless it says otherwise: the fewest of several times, of which there
/// are more while one is over its `most`.
async fn at_most(engine: &str, url: &str, most: Most) {
    let (one, two) = (fencelock::connect(url).await.unwrap(), fencelock::connect(url).await.unwrap());
    for locks in [&one, &two] {
        locks.acquire("a").await.unwrap().release().await.unwrap();
    }
    let (cold, new, after_others, acquire, release, handover) =
        (f64::MAX, f64::MAX, f64::MAX, f64::MAX, f64::MAX, f64::MAX);
    let mut least = Trips { cold, new, after_others, acquire, release, handover };
    for round in 0..ROUNDS {
        first(url, round, &mut least).await;
        let (after_others, guard) = timed(one.named("a").ttl(LIMIT).acquire()).await;
        least.after_others = least.after_others.min(after_others);
        guard.unwrap().release().await.unwrap();
        let (acquire, guard) = timed(one.named("a").ttl(LIMIT).acquire()).await;
        let (release, released) = timed(guard.unwrap().release()).await;
        released.unwrap();
        (least.acquire, least.release) = (least.acquire.min(acquire), least.release.min(release));
        least.handover = least.handover.min(handed(&one, &two).await);
        if round > 0 && most.over(&least).is_empty() {
            break;
        }
    }
    let Trips { cold, new, after_others, acquire, release, handover } = least;
    eprintln!(
        "{engine}: acquire {acquire:.2}, after others {after_others:.2}, the first {cold:.2}, of a new name {new:.2}, \
         release {release:.2}, handover {handover:.2} round trips"
    );
    assert_eq!(most.over(&least), [""; 0], "{engine}");
    // A wire that carries nothing late would show nothing.
    assert!(acquire >= most.acquire && release >= 1.0, "{engine}: faster than the wire");
}

/// How many round trips something takes, and what comes of it.
async fn timed<T>(work: impl Future<Output = T>) -> (f64, T) {
    let started = Instant::now();
    let done = work.await;
    (in_trips(started.elapsed()), done)
}

fn in_trips(time: Duration) -> f64 {
    time.as_secs_f64() / TRIP.as_secs_f64()
}

/// A client's first acquire, and that of a new name. The second of the new names finds the statements prepared.
async fn first(url: &str, round: usize, least: &mut Trips) {
    let fresh = fencelock::connect(url).await.unwrap();
    let mut found = Vec::new();
    for name in ["a".to_owned(), format!("new/{round}/0"), format!("new/{round}/1")] {
        let (trips, guard) = timed(fresh.named(&name).ttl(LIMIT).acquire()).await;
        found.push(trips);
        guard.unwrap().release().await.unwrap();
    }
    fresh.close().await;
    (least.cold, least.new) = (least.cold.min(found[0]), least.new.min(found[2]));
}

/// From the moment at which `one` releases to that at which `two` has it.
async fn handed(one: &LockClient, two: &LockClient) -> f64 {
    let guard = one.named("a").ttl(LIMIT).acquire().await.unwrap();
    let lock = two.named("a").ttl(LIMIT).wait_at_most(LIMIT);
    let waiting = tokio::spawn(async move { (lock.acquire().await.unwrap(), Instant::now()) });
    // It has found the lock held, and has made itself known by then.
    sleep(TRIP * 10).await;
    let started = Instant::now();
    guard.release().await.unwrap();
    let (next, granted) = timeout(LIMIT, waiting).await.unwrap().unwrap();
    next.release().await.unwrap();
    in_trips(granted - started)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis() {
    let server = fencelock_lab::Redis::start().unwrap();
    let url = format!("redis://{}", wire(server.address()).await);
    at_most("redis", &url, Most { cold: 1.0, new: 1.0, after_others: 1.0, acquire: 1.0, handover: Some(1.0) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redlock() {
    // Nodes that forget would not be let in before they have been up for a while.
    let nodes = fencelock_lab::RedisNodes::start_durable(3).unwrap();
    let mut wired = Vec::new();
    for node in nodes.addresses().split(',') {
        wired.push(wire(node.parse().unwrap()).await.to_string());
    }
    let url = format!("redlock://{}?request_timeout=1s", wired.join(","));
    let near = EngineUrl::parse(&format!("redlock://{}", nodes.addresses())).unwrap();
    let config = RedlockConfig::from_url(&near).unwrap();
    RedlockOperator::new(config).unwrap().init(0).await.unwrap();
    // The second round is for the token, where nothing was heard of the shard's counter since others raised it. Whoever
    // waits has heard.
    at_most("redlock", &url, Most { cold: 2.0, new: 2.0, after_others: 2.0, acquire: 1.0, handover: Some(2.0) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd() {
    let server = fencelock_lab::Etcd::start().unwrap();
    // The first makes the lease.
    let url = format!("etcd://{}", wire(server.endpoint(0).unwrap()).await);
    at_most("etcd", &url, Most { cold: 2.0, new: 1.0, after_others: 1.0, acquire: 1.0, handover: Some(2.0) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zookeeper() {
    let server = fencelock_lab::ZooKeeper::start().unwrap();
    // The node of a new name is missed, made, and then there.
    let url = format!("zookeeper://{}?session=40s", wire(server.address()).await);
    at_most("zookeeper", &url, Most { cold: 1.0, new: 3.0, after_others: 1.0, acquire: 1.0, handover: Some(2.0) })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres() {
    // The first prepares its statement.
    let server = fencelock_lab::Postgres::start().unwrap();
    let near = server.address();
    let url = server.url().replace(&near.to_string(), &wire(near).await.to_string());
    at_most("postgres", &url, Most { cold: 2.0, new: 1.0, after_others: 1.0, acquire: 1.0, handover: Some(2.0) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql() {
    // The same; and a new name has no row to update.
    let server = fencelock_lab::MariaDb::start().unwrap();
    let near = server.address();
    let url = server.url().replace(&near.to_string(), &wire(near).await.to_string());
    at_most("mysql", &url, Most { cold: 2.0, new: 2.0, after_others: 1.0, acquire: 1.0, handover: None }).await;
}
