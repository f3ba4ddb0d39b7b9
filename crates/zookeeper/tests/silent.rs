//! A service that gives a client another session without a word, as some compatible servers do.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, missing_docs, reason = "a test")]

mod common;

use common::{SLACK, client, nodes, raw, until, within};
use fencelock_core::LossReason;
use fencelock_lab::ZooKeeper;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// The number of the request for the nodes of the session that asks.
const LIST: [u8; 4] = 103_i32.to_be_bytes();
/// The server does not know such a request.
const UNIMPLEMENTED: [u8; 4] = (-6_i32).to_be_bytes();

/// One frame, or what else there is, from the server to the client.
fn answer(from: &mut TcpStream, to: &Mutex<TcpStream>) -> std::io::Result<()> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let mut body = Vec::new();
    match u32::from_be_bytes(length) {
        frame @ ..0x10_0000 => from.take(frame.into()).read_to_end(&mut body)?,
        // The beginning of a text.
        _ => from.read_to_end(&mut body)?,
    };
    to.lock().unwrap().write_all(&[&length[..], &body].concat())
}

/// Passes requests on one by one; those for lists are refused if the server is to be `simple`.
fn pass_on(from: &mut TcpStream, to: &mut TcpStream, back: &Mutex<TcpStream>, simple: bool) -> std::io::Result<()> {
    let mut first = true;
    loop {
        let mut length = [0; 4];
        from.read_exact(&mut length)?;
        if &length == b"srvr" || &length == b"conf" {
            to.write_all(&length)?;
            continue;
        }
        let mut request = vec![0; u32::from_be_bytes(length) as usize];
        from.read_exact(&mut request)?;
        if std::mem::take(&mut first) {
            // Version, last zxid, time-out, session number, password.
            request[16..24].fill(0);
            request[28..44].fill(0);
        } else if simple && request[4..8] == LIST {
            let refusal = [&16_u32.to_be_bytes()[..], &request[..4], &[0; 8], &UNIMPLEMENTED].concat();
            back.lock().unwrap().write_all(&refusal)?;
            continue;
        }
        to.write_all(&[&length[..], &request].concat())?;
    }
}

/// Forgets the session number in every connect request, so that the server makes
/// a new session for what should have been the old one.
struct Forgetful {
    port: u16,
    live: Arc<Mutex<Vec<TcpStream>>>,
}

impl Forgetful {
    fn before(target: SocketAddr, simple: bool) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let live = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&live);
        thread::spawn(move || {
            while let Ok((mut from, _)) = listener.accept() {
                let Ok(mut to) = TcpStream::connect(target) else { continue };
                kept.lock().unwrap().push(from.try_clone().unwrap());
                let (back, mut answers) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                let back = Arc::new(Mutex::new(back));
                let there = Arc::clone(&back);
                thread::spawn(move || {
                    while answer(&mut answers, &there).is_ok() {}
                    let _ = there.lock().unwrap().shutdown(Shutdown::Both);
                });
                thread::spawn(move || {
                    let _ = pass_on(&mut from, &mut to, &back, simple);
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
        });
        Self { port, live }
    }

    fn cut(&self) {
        for stream in self.live.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_session_without_a_word_is_noticed() {
    noticed(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_noticed_where_a_session_cannot_be_asked_for_its_nodes() {
    noticed(true).await;
}

async fn noticed(simple: bool) {
    let server = ZooKeeper::start().unwrap();
    let forgetful = Forgetful::before(server.address(), simple);
    let raw = raw(&server.address().to_string()).await;
    let url = format!("zookeeper://127.0.0.1:{}?session=4s&request_timeout=1s", forgetful.port);
    let client = client(&url).await;
    let guard = client.acquire("silent").await.unwrap();
    let waited = client.named("waited");
    let first = client.acquire("waited").await.unwrap();
    let waiting = tokio::spawn(async move { waited.acquire().await });
    until("the waiter has a place", SLACK, || async { nodes(&raw, "waited").await.len() == 2 }).await;

    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(guard.is_held() && first.is_held(), "not kept alive");
    forgetful.cut();
    let cut = Instant::now();
    let reason = within("the loss is told", SLACK, guard.lost()).await;
    let told = cut.elapsed();
    let still_there = !nodes(&raw, "silent").await.is_empty();
    println!("told {reason:?} after {told:?}, while the old node is {}", if still_there { "there" } else { "gone" });
    // Nothing that the new session is answered counts for the old one.
    assert!(still_there, "told only when the server had ended the old session");
    assert!(matches!(reason, LossReason::SessionEnded | LossReason::Expired), "{reason:?}");
    within("the other hold is lost too", SLACK, first.lost()).await;
    // The waiter took a place in the new session, behind what the old one has left until the server ends it.
    let next = within("the waiter is served", SLACK, waiting).await.unwrap().unwrap();
    assert!(next.is_held() && next.token() > first.token());
    let mine = nodes(&raw, "waited").await;
    assert_eq!(mine.len(), 1, "{mine:?}");
    assert!(next.evidence().get("path").unwrap().ends_with(&mine[0]));
    let again = within("the client works again", SLACK, client.acquire("silent")).await.unwrap();
    assert!(again.token() > guard.token());
    next.release().await.unwrap();
    again.release().await.unwrap();
}

/// The place in the queue is of the old session and would vanish with it, after the lock was granted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_old_sessions_place_is_not_taken_over() {
    let server = ZooKeeper::start().unwrap();
    let forgetful = Forgetful::before(server.address(), false);
    let raw = raw(&server.address().to_string()).await;
    let replaced = client(&format!("zookeeper://127.0.0.1:{}?session=4s&request_timeout=1s", forgetful.port)).await;
    let other = client(&format!("zookeeper://{}?session=4s", server.address())).await;
    let canary = replaced.acquire("canary").await.unwrap();
    let guard = other.acquire("place").await.unwrap();
    let waiting = common::in_line(&raw, &replaced, "place").await;
    let old = nodes(&raw, "place").await;
    forgetful.cut();
    within("the end of the session is noticed", SLACK, canary.lost()).await;
    until("another place is taken", SLACK, || async {
        let now = nodes(&raw, "place").await;
        now.len() == 2 && now.iter().any(|node| !old.contains(node))
    })
    .await;
    guard.release().await.unwrap();
    let next = within("the waiter is served", SLACK, waiting).await.unwrap().unwrap();
    // Until the server has ended the old session.
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(next.is_held(), "lost with the session before");
    next.release().await.unwrap();
}

/// Heartbeats that write, many at a time: none is taken for another's, nor for an answer to whoever sent it along.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_that_write_do_not_meet() {
    let server = ZooKeeper::start().unwrap();
    let forgetful = Forgetful::before(server.address(), true);
    let raw = raw(&server.address().to_string()).await;
    let client = client(&format!("zookeeper://127.0.0.1:{}?session=4s&request_timeout=2s", forgetful.port)).await;
    for round in 0..4 {
        // So old that everybody sends one along.
        tokio::time::sleep(Duration::from_millis(600)).await;
        let mut acquiring = tokio::task::JoinSet::new();
        for at in 0..40 {
            let lock = client.named(&format!("beat{round}x{at}"));
            acquiring.spawn(async move { lock.acquire().await });
        }
        while let Some(acquired) = within("granted", SLACK, acquiring.join_next()).await {
            let guard = acquired.unwrap().unwrap();
            assert_eq!(nodes(&raw, guard.name().as_str()).await.len(), 1, "of {}", guard.name());
            guard.release().await.unwrap();
        }
    }
    assert_eq!(raw.list_children("/fencelock/%sessions").await.unwrap().len(), 1, "heartbeats leave nothing");
}

/// Somebody removes what the session shows itself by: no claim is taken for one whose parent is missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_heartbeat_that_finds_no_parent_ends_the_session() {
    let server = ZooKeeper::start().unwrap();
    let forgetful = Forgetful::before(server.address(), true);
    let raw = raw(&server.address().to_string()).await;
    let client = client(&format!("zookeeper://127.0.0.1:{}?session=4s&request_timeout=1s", forgetful.port)).await;
    let guard = client.acquire("kept").await.unwrap();
    for session in raw.list_children("/fencelock/%sessions").await.unwrap() {
        raw.delete(&format!("/fencelock/%sessions/{session}"), None).await.unwrap();
    }
    raw.delete("/fencelock/%sessions", None).await.unwrap();
    within("the loss is told", SLACK, guard.lost()).await;
    let next = within("in a new session", SLACK, client.acquire("other")).await.unwrap();
    assert_eq!(nodes(&raw, "other").await.len(), 1);
    next.release().await.unwrap();
}
