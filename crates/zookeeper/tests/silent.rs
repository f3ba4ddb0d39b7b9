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

/// Forgets the session number in every connect request, so that the server makes
/// a new session for what should have been the old one.
struct Forgetful {
    port: u16,
    live: Arc<Mutex<Vec<TcpStream>>>,
}

impl Forgetful {
    fn before(target: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let live = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&live);
        thread::spawn(move || {
            while let Ok((mut from, _)) = listener.accept() {
                let Ok(mut to) = TcpStream::connect(target) else { continue };
                kept.lock().unwrap().push(from.try_clone().unwrap());
                let (mut back, mut answers) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                thread::spawn(move || {
                    let _ = std::io::copy(&mut answers, &mut back);
                    let _ = back.shutdown(Shutdown::Both);
                });
                thread::spawn(move || {
                    // Length, version, last zxid, time-out, session number, password.
                    let mut first = [0; 48];
                    if from.read_exact(&mut first).is_ok() {
                        if &first[..4] != b"srvr" && &first[..4] != b"conf" {
                            first[20..28].fill(0);
                            first[32..48].fill(0);
                        }
                        let _ = to.write_all(&first);
                        let _ = std::io::copy(&mut from, &mut to);
                    }
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
    let server = ZooKeeper::start().unwrap();
    let forgetful = Forgetful::before(server.address());
    let raw = raw(&server.address().to_string()).await;
    let url = format!("zookeeper://127.0.0.1:{}?session=4s&request_timeout=1s", forgetful.port);
    let client = client(&url).await;
    let guard = client.acquire("silent").await.unwrap();
    let waited = client.named("waited");
    let first = client.acquire("waited").await.unwrap();
    let waiting = tokio::spawn(async move { waited.acquire().await });
    until("the waiter has a place", SLACK, || async { nodes(&raw, "waited").await.len() == 2 }).await;

    forgetful.cut();
    let reason = within("the loss is told", SLACK, guard.lost()).await;
    assert!(matches!(reason, LossReason::SessionEnded | LossReason::Expired), "{reason:?}");
    println!("told {reason:?}");
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
