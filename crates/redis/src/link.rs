//! One connection that comes back by itself, within bounds.

use crate::ears::Ears;
use crate::failure::Failure;
use crate::open::Opener;
use fencelock_core::{Claim, by};
use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::{Cmd, Pipeline, PushInfo, PushKind, RedisResult, Value};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// For how long after a failed opening no other is tried, and its failure is told instead.
const REST: Duration = Duration::from_millis(20);

/// The least time between the beginnings of two openings beside a silent connection.
const APART: Duration = Duration::from_millis(50);

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The server's own refusal as a failure; what a script returned is not looked into.
fn top(answer: Value) -> RedisResult<Value> {
    match answer {
        Value::ServerError(error) => Err(error.into()),
        answer => Ok(answer),
    }
}

/// The same for one of several answers.
pub(crate) fn failed(answer: Value) -> Result<Value, Failure> {
    top(answer).map_err(Failure::of)
}

/// One server, or whoever is master. Cloning gives the same connection.
///
/// The client library's own connection never comes back, and its manager waits
/// for 9 s when a server is away. This one is opened when it is needed, once for
/// all who need it, and given up when it breaks or has gone silent.
#[derive(Clone)]
pub(crate) struct Link(Arc<Inner>);

struct Inner {
    opener: Opener,
    state: Mutex<State>,
    replacing: Mutex<Replacing>,
    events: Events,
}

/// Who is told what happens on a link.
#[derive(Clone, Default)]
pub(crate) struct Events {
    pub(crate) ears: Weak<Ears>,
    /// Told when a connection was opened.
    pub(crate) up: Option<Arc<dyn Fn() + Send + Sync>>,
}

type Opened = Result<Wire, Arc<Failure>>;

enum State {
    Down,
    Failed(Instant, Arc<Failure>),
    Opening(watch::Receiver<Option<Opened>>),
    Up(Wire),
}

/// One live connection.
#[derive(Clone)]
pub(crate) struct Wire {
    id: Arc<WireId>,
    connection: MultiplexedConnection,
}

/// What tells one connection from another, and whether it lives.
pub(crate) struct WireId {
    alive: AtomicBool,
    answers: AtomicU64,
}

impl WireId {
    pub(crate) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::SeqCst)
    }
}

impl Link {
    pub(crate) fn new(opener: Opener, events: Events) -> Self {
        let (state, replacing) = (Mutex::new(State::Down), Mutex::default());
        Self(Arc::new(Inner { opener, state, replacing, events }))
    }

    /// Sends a command and waits for its answer, both at most until `deadline`.
    pub(crate) async fn call(&self, command: &Cmd, deadline: Instant) -> Result<Value, Failure> {
        self.call_for(None, command, deadline).await
    }

    /// The same, as a part of the claim's call.
    pub(crate) async fn call_for(
        &self,
        of: Option<&Claim>,
        command: &Cmd,
        deadline: Instant,
    ) -> Result<Value, Failure> {
        let wire = self.wire(deadline).await?;
        let mut connection = wire.connection.clone();
        // A server's error is an answer to this library; here it may mean that the server is the wrong one.
        let answer = async { top(connection.req_packed_command(command).await?) };
        self.on(&wire, (deadline, of), answer).await
    }

    /// Sends several commands together, on one connection and in order. An error
    /// that the server answers one of them with is among the answers.
    pub(crate) async fn call_all(&self, commands: &Pipeline, deadline: Instant) -> Result<Vec<Value>, Failure> {
        let wire = self.wire(deadline).await?;
        let (mut connection, number) = (wire.connection.clone(), commands.len());
        let answers = self.on(&wire, (deadline, None), connection.req_packed_commands(commands, 0, number)).await?;
        for answer in &answers {
            if let Value::ServerError(_) = answer
                && failed(answer.clone()).is_err_and(|failure| failure.reopen)
            {
                self.give_up(&wire.id);
            }
        }
        Ok(answers)
    }

    /// Begins to listen on all of `channels`, on the connection that is returned.
    pub(crate) async fn subscribe(&self, channels: &[String], deadline: Instant) -> Result<Arc<WireId>, Failure> {
        let wire = self.wire(deadline).await?;
        let mut connection = wire.connection.clone();
        self.on(&wire, (deadline, None), connection.subscribe(channels)).await?;
        Ok(wire.id)
    }

    /// Ends listening, if the connection that listened still lives.
    pub(crate) async fn unsubscribe(&self, channels: &[String], on: &Arc<WireId>, deadline: Instant) {
        let wire = match &*lock(&self.0.state) {
            State::Up(wire) if Arc::ptr_eq(&wire.id, on) => wire.clone(),
            _ => return,
        };
        let mut connection = wire.connection.clone();
        let _ = self.on(&wire, (deadline, None), connection.unsubscribe(channels)).await;
    }

    async fn on<T>(
        &self,
        wire: &Wire,
        (deadline, of): (Instant, Option<&Claim>),
        answer: impl Future<Output = RedisResult<T>>,
    ) -> Result<T, Failure> {
        let before = wire.id.answers.load(Ordering::SeqCst);
        match by(deadline, of, answer).await {
            Some(outcome) => {
                let outcome = outcome.map_err(Failure::of);
                match &outcome {
                    Err(failure) if failure.reopen => self.give_up(&wire.id),
                    _ => {
                        wire.id.answers.fetch_add(1, Ordering::SeqCst);
                    }
                }
                outcome
            }
            None => {
                // Silent to everybody: it may be cut, or lead to a server that is gone. Or the
                // server is slow, and opening another would be slow as well: so it stays until then.
                if wire.id.answers.load(Ordering::SeqCst) == before && lock(&self.0.replacing).begin() {
                    tokio::spawn(Arc::clone(&self.0).replace(Arc::clone(&wire.id), before));
                }
                Err(Failure::no_answer())
            }
        }
    }

    /// Whether both are the same link.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether there is a connection that lives.
    pub(crate) fn is_up(&self) -> bool {
        matches!(&*lock(&self.0.state), State::Up(wire) if wire.id.is_alive())
    }

    /// Never uses the connection again that there is now.
    pub(crate) fn leave(&self) {
        let id = match &*lock(&self.0.state) {
            State::Up(wire) => Arc::clone(&wire.id),
            _ => return,
        };
        self.give_up(&id);
    }

    /// Never uses that connection again.
    pub(crate) fn give_up(&self, id: &Arc<WireId>) {
        self.0.give_up_for(id, State::Down);
    }

    /// Sees to it that there is a connection.
    pub(crate) async fn open(&self, deadline: Instant) -> Result<(), Failure> {
        self.wire(deadline).await.map(drop)
    }

    async fn wire(&self, deadline: Instant) -> Result<Wire, Failure> {
        let mut opening = {
            let mut state = lock(&self.0.state);
            match &*state {
                State::Up(wire) if wire.id.is_alive() => return Ok(wire.clone()),
                State::Failed(when, failure) if when.elapsed() < REST => return Err(again(failure)),
                State::Opening(opening) => opening.clone(),
                State::Up(_) | State::Down | State::Failed(..) => {
                    let (done, opening) = watch::channel(None);
                    *state = State::Opening(opening.clone());
                    // A task of its own: whoever asked first may be gone when it is done.
                    tokio::spawn(Arc::clone(&self.0).open(done));
                    opening
                }
            }
        };
        let opened = timeout_at(deadline, opening.wait_for(Option::is_some)).await;
        match opened {
            Err(_) => Err(Failure::not_reached("no connection in time")),
            Ok(Err(_)) => Err(Failure::not_reached("the opening was given up")),
            Ok(Ok(opened)) => match &*opened {
                Some(Ok(wire)) => Ok(wire.clone()),
                Some(Err(failure)) => Err(again(failure)),
                None => Err(Failure::not_reached("the opening was given up")),
            },
        }
    }
}

/// The failure of an opening, told to one more who waited for it.
fn again(failure: &Failure) -> Failure {
    let told = Failure::not_reached(failure.error.message());
    // Who was turned away was reached.
    let message = match failure.error.kind() {
        fencelock_core::ErrorKind::Unavailable => told.error.message(),
        _ => failure.error.message(),
    };
    let error = fencelock_core::Error::new(failure.error.kind(), message.to_owned()).with_engine("redis");
    Failure { error, next: failure.next.clone(), ..told }
}

impl Inner {
    /// Opens the one connection that all who ask wait for.
    async fn open(self: Arc<Self>, done: watch::Sender<Option<Opened>>) {
        let mut settled = Settled(&self, Some(State::Down));
        let opened = self.dial().await.map_err(Arc::new);
        settled.1 = Some(match &opened {
            Ok(wire) => State::Up(wire.clone()),
            Err(failure) => State::Failed(Instant::now(), Arc::clone(failure)),
        });
        drop(settled);
        done.send_replace(Some(opened));
    }

    /// Opens another connection beside a silent one, and takes its place if that is still silent then.
    async fn replace(self: Arc<Self>, silent: Arc<WireId>, answers: u64) {
        let opened = self.dial().await;
        lock(&self.replacing).under_way -= 1;
        if let Ok(wire) = opened
            && silent.answers.load(Ordering::SeqCst) == answers
        {
            self.give_up_for(&silent, State::Up(wire));
        }
    }

    async fn dial(self: &Arc<Self>) -> Result<Wire, Failure> {
        let id = Arc::new(WireId { alive: AtomicBool::new(true), answers: AtomicU64::new(0) });
        let (ears, inner, wire) = (Weak::clone(&self.events.ears), Arc::downgrade(self), Arc::downgrade(&id));
        let pushed = move |push: PushInfo| -> Result<(), ()> {
            match push.kind {
                PushKind::Message => {
                    if let (Some(ears), Some(channel)) = (ears.upgrade(), push.data.first()) {
                        ears.heard(channel, push.data.get(1));
                    }
                }
                PushKind::Disconnection => {
                    if let (Some(inner), Some(id)) = (inner.upgrade(), wire.upgrade()) {
                        inner.give_up_for(&id, State::Down);
                    }
                }
                _ => {}
            }
            Ok(())
        };
        let connection = self.opener.open(pushed).await?;
        if let Some(told) = &self.events.up {
            told();
        }
        Ok(Wire { id, connection })
    }

    fn give_up_for(&self, id: &Arc<WireId>, next: State) {
        id.alive.store(false, Ordering::SeqCst);
        let mut state = lock(&self.state);
        if let State::Up(wire) = &*state
            && Arc::ptr_eq(&wire.id, id)
        {
            *state = next;
            drop(state);
            if let Some(ears) = self.events.ears.upgrade() {
                ears.deafened();
            }
        }
    }
}

/// Connections being opened beside one that has gone silent. An opening may hang
/// where the next one would not, so a few of them run at a time.
#[derive(Default)]
struct Replacing {
    under_way: u32,
    last: Option<Instant>,
}

impl Replacing {
    fn begin(&mut self) -> bool {
        let now = Instant::now();
        let soon = self.last.is_some_and(|last| now.duration_since(last) < APART);
        if soon || self.under_way >= 4 {
            return false;
        }
        self.under_way += 1;
        self.last = Some(now);
        true
    }
}

/// Sets the state when it is dropped, so that nobody waits for a task that was ended.
struct Settled<'a>(&'a Inner, Option<State>);

impl Drop for Settled<'_> {
    fn drop(&mut self) {
        if let Some(state) = self.1.take() {
            *lock(&self.0.state) = state;
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &*lock(&self.0.state) {
            State::Up(_) => "up",
            State::Opening(_) => "opening",
            State::Down | State::Failed(..) => "down",
        };
        f.debug_tuple("Link").field(&self.0.opener).field(&state).finish()
    }
}
