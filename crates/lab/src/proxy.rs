//! A TCP proxy that can misbehave, for one server.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How the proxy treats what passes through it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mood {
    /// As a wire would.
    #[default]
    Honest,
    /// Requests arrive, their answers are dropped.
    DropReplies,
    /// Requests are dropped.
    DropRequests,
    /// Requests arrive after this long, in order.
    DelayRequests(Duration),
    /// Requests arrive at once, and once more on another connection after this long.
    RequestsTwice(Duration),
    /// Answers come after this long, in order.
    DelayReplies(Duration),
    /// The same, and requests wait until the mood changes.
    DelayRepliesHoldRequests(Duration),
    /// Nothing passes either way; connections stay open, and what was sent
    /// meanwhile passes when the mood changes.
    Hold,
    /// New connections are closed at once; live ones were cut when the mood began.
    Refuse,
}

impl Mood {
    /// Whether what comes now, requests or answers, waits until it changes.
    fn holds(self, requests: bool) -> bool {
        match self {
            Self::Hold => true,
            Self::DelayRepliesHoldRequests(_) => requests,
            _ => false,
        }
    }
}

/// A proxy on a free loopback port before `target`.
///
/// # Drop
/// Closes every connection through it; its threads end.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    target: Mutex<SocketAddr>,
    mood: Mutex<Mood>,
    pairs: Mutex<Vec<(TcpStream, TcpStream)>>,
    ended: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn mood(&self) -> Mood {
        *lock(&self.mood)
    }

    fn ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    fn cut(&self) {
        for (client, server) in lock(&self.pairs).drain(..) {
            let _ = client.shutdown(Shutdown::Both);
            let _ = server.shutdown(Shutdown::Both);
        }
    }
}

impl Proxy {
    /// Starts a proxy before `target`.
    ///
    /// # Errors
    /// If no port can be had.
    pub fn before(target: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared {
            target: Mutex::new(target),
            mood: Mutex::default(),
            pairs: Mutex::default(),
            ended: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if accepting.ended() {
                    return;
                }
                if let Ok(client) = client
                    && accepting.mood() != Mood::Refuse
                {
                    let target = *lock(&accepting.target);
                    let _ = connect(&accepting, client, target);
                }
            }
        });
        Ok(Self { port, shared })
    }

    /// The port to connect to instead of the server's.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// How what passes is treated.
    #[must_use]
    pub fn mood(&self) -> Mood {
        self.shared.mood()
    }

    /// From now on, what passes is treated so.
    pub fn set(&self, mood: Mood) {
        *lock(&self.shared.mood) = mood;
        if mood == Mood::Refuse {
            self.shared.cut();
        }
    }

    /// Cuts every live connection; new ones go to `target`, as a service's address
    /// does after a fail-over.
    pub fn turn_to(&self, target: SocketAddr) {
        *lock(&self.shared.target) = target;
        self.shared.cut();
    }

    /// Cuts every live connection; new ones are accepted.
    pub fn cut(&self) {
        self.shared.cut();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.shared.cut();
        // Wakes the accepting thread, so that it sees the end.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy").field("port", &self.port).field("mood", &self.shared.mood()).finish()
    }
}

fn connect(shared: &Arc<Shared>, client: TcpStream, target: SocketAddr) -> std::io::Result<()> {
    let server = TcpStream::connect(target)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    lock(&shared.pairs).push((client.try_clone()?, server.try_clone()?));
    let again = Again { target, opening: Arc::default() };
    pump(Arc::clone(shared), client.try_clone()?, server.try_clone()?, Some(again));
    pump(Arc::clone(shared), server, client, None);
    Ok(())
}

/// What it takes to deliver a request of one connection once more.
struct Again {
    target: SocketAddr,
    /// What the client sent first, which lets the second connection in.
    opening: Arc<Mutex<Option<Vec<u8>>>>,
}

impl Again {
    fn deliver(&self, request: &[u8], late: Duration) {
        let opening = lock(&self.opening).get_or_insert_with(|| request.to_vec()).clone();
        if opening == request {
            return;
        }
        let (target, request) = (self.target, request.to_vec());
        std::thread::spawn(move || {
            std::thread::sleep(late);
            let Ok(mut server) = TcpStream::connect(target) else { return };
            let _ = server.set_read_timeout(Some(Duration::from_secs(5)));
            let mut answers = [0; 16 * 1024];
            for part in [opening, request] {
                if server.write_all(&part).is_err() || server.read(&mut answers).is_err() {
                    return;
                }
            }
        });
    }
}

fn pump(shared: Arc<Shared>, mut from: TcpStream, mut to: TcpStream, again: Option<Again>) {
    let requests = again.is_some();
    std::thread::spawn(move || {
        let mut buffer = [0; 16 * 1024];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            while shared.mood().holds(requests) && !shared.ended() {
                std::thread::sleep(Duration::from_millis(2));
            }
            match (shared.mood(), requests) {
                (Mood::DropReplies, false) | (Mood::DropRequests, true) => continue,
                (Mood::DelayRequests(late), true)
                | (Mood::DelayReplies(late) | Mood::DelayRepliesHoldRequests(late), false) => std::thread::sleep(late),
                _ => {}
            }
            if to.write_all(buffer.get(..read).unwrap_or_default()).is_err() {
                break;
            }
            // After the request itself, so that it is a copy that comes second.
            if let Some(again) = &again {
                let sent = buffer.get(..read).unwrap_or_default();
                match shared.mood() {
                    Mood::RequestsTwice(late) => again.deliver(sent, late),
                    _ => {
                        lock(&again.opening).get_or_insert_with(|| sent.to_vec());
                    }
                }
            }
        }
        let _ = to.shutdown(Shutdown::Write);
        let _ = from.shutdown(Shutdown::Read);
    });
}
