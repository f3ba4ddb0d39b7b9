//! Waiting to be told: one connection a client that listens for every name.
//!
//! There are two channels a lock table, one that is called after it and one whose
//! name is random, and none a name, since the server hands each notice to every
//! listener of the database anyway; the notice has the name. It is sent only of a
//! name that somebody waits for. Notices are lost while the connection
//! is broken, so when it is back everyone looks once.
//!
//! The session that listens holds a lock of the server's own for as long as it
//! lives. Whoever would hand a lock on to one of its waiters sees by that that
//! there is somebody to hear of it.

use super::notice::{Handing, Notice, Waiting, hex, unhex};
use super::places::{Places, Shared, Waits};
use super::queues::Queues;
use super::store::Store;
use crate::micros::micros;
use async_trait::async_trait;
use fencelock_core::{ClaimId, Error, ErrorKind, Hint, Hints, LockName, Polling, Result};
use sqlx::AssertSqlSafe;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// What lies between attempts to listen again, at first and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// After how long without a notice the server is asked whether it is still there:
/// a connection that was cut without a word looks like one where nothing happens.
const QUIET: Duration = Duration::from_secs(30);

/// How long after the end of a hold whoever waits looks whether it has been renewed.
const AFTER: Duration = Duration::from_millis(5);

/// The ears of one client.
pub(crate) struct Ears {
    options: PgConnectOptions,
    channel: String,
    /// Where waiters tell of themselves, and releases hand on.
    secret: Option<String>,
    limit: Duration,
    quiet: Duration,
    names: Mutex<Names>,
    listening: watch::Sender<bool>,
    task: Mutex<Option<tokio::task::AbortHandle>>,
    itself: Weak<Self>,
    heard: Mutex<Heard>,
    places: Mutex<Places>,
    /// Which names this client waits for and holds.
    pub(super) polling: OnceLock<Polling>,
    pub(super) store: OnceLock<Weak<Store>>,
}

#[derive(Default)]
struct Heard {
    /// The lock of the server's own that the listening session holds.
    listener: Option<i64>,
    queues: Queues,
}

/// Whom to wake for a name, as notices write it.
type Names = HashMap<String, Vec<Weak<Told>>>;

/// What one ear has been told.
#[derive(Default)]
struct Told {
    freed: Notify,
    /// When the hold to which the lock was handed on runs out unless it is renewed: whoever got it may be dead.
    until: Mutex<Option<Instant>>,
    handed: Notify,
}

/// The channel of a table. Longer ones than 63 bytes are cut by the server, so it is hashed (FNV-1a).
pub(crate) fn channel(table: &str) -> String {
    let hash = table
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("fencelock_{hash:016x}")
}

fn written(name: &LockName) -> String {
    hex(name.as_str().as_bytes())
}

impl Ears {
    pub(crate) fn new(
        options: PgConnectOptions,
        channel: String,
        secret: Option<String>,
        limit: Duration,
    ) -> Arc<Self> {
        Self::asking(options, channel, secret, limit, QUIET)
    }

    fn asking(
        options: PgConnectOptions,
        channel: String,
        secret: Option<String>,
        limit: Duration,
        quiet: Duration,
    ) -> Arc<Self> {
        let (names, listening) = (Mutex::default(), watch::Sender::new(false));
        Arc::new_cyclic(|itself| Self {
            options,
            channel,
            secret,
            limit,
            quiet,
            names,
            listening,
            task: Mutex::default(),
            itself: Weak::clone(itself),
            heard: Mutex::default(),
            places: Mutex::default(),
            polling: OnceLock::new(),
            store: OnceLock::new(),
        })
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What shows that this client listens, while it does: to releases that hand on as well.
    pub(super) fn listener(&self) -> Option<i64> {
        self.heard().listener.filter(|_| self.secret.is_some())
    }

    /// From here on a session listens that holds this lock, or none: what was told meanwhile was missed.
    fn listens(&self, listener: Option<i64>) {
        let mut heard = self.heard();
        heard.listener = listener;
        heard.queues.clear();
        drop(heard);
        self.listening.send_replace(listener.is_some());
    }

    fn hears(&self, channel: &str, payload: &str) {
        if self.secret.as_deref() != Some(channel) {
            return self.freed(payload);
        }
        match Notice::read(payload) {
            Some(Notice::Waits(name, waiting, token)) if self.knows(&name) => {
                self.heard().queues.waits(name, waiting, token);
            }
            Some(Notice::Handed(handing)) => self.handed(&handing),
            Some(Notice::Gone(name, id, token)) => self.heard().queues.gone(&name, id, token),
            Some(Notice::Waits(..)) | None => {}
        }
    }

    fn knows(&self, name: &str) -> bool {
        let name = unhex(name).and_then(|name| String::from_utf8(name).ok()).and_then(|name| LockName::new(name).ok());
        name.is_some_and(|name| self.polling.get().is_some_and(|polling| polling.knows(&name)))
    }

    /// The lock may be free.
    fn freed(&self, name: &str) {
        self.of(name).iter().for_each(|ear| ear.freed.notify_one());
    }

    fn of(&self, name: &str) -> Vec<Arc<Told>> {
        self.names().get(name).map(|ears| ears.iter().filter_map(Weak::upgrade).collect()).unwrap_or_default()
    }

    fn handed(&self, handing: &Handing) {
        let mut heard = self.heard();
        heard.queues.handed(handing);
        let ours = heard.listener == Some(handing.listener);
        drop(heard);
        let until = Instant::now() + micros(handing.ttl) + AFTER;
        for ear in self.of(&handing.name) {
            *ear.until.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
            ear.handed.notify_one();
        }
        let place = self.places().find(handing.to);
        if place.is_some_and(|place| place.receives(handing)) || !ours {
            return;
        }
        // It had found by itself that it held the lock, and lost it before this came: nobody is to have it before its time
        // and the lock delay are over.
        if self.places().had(handing.to, handing.token) {
            return;
        }
        // Who waited has left, or has held it since: nobody here would ever give it back.
        let name = unhex(&handing.name).and_then(|name| String::from_utf8(name).ok());
        let name = name.and_then(|name| LockName::new(name).ok());
        if let (Some(store), Some(name)) = (self.store.get(), name) {
            tokio::spawn(gives_back(Weak::clone(store), name, handing.clone(), until));
        }
    }

    /// A place for a claim, which hears from here on, if this client listens.
    pub(super) fn place(&self, name: &LockName, id: ClaimId) -> Option<Waits> {
        self.listener()?;
        Some(Waits::new(&self.itself.upgrade()?, id, self.ear(name)))
    }

    pub(super) fn find(&self, id: ClaimId) -> Option<Arc<Shared>> {
        self.places().find(id)
    }

    /// To whom a hold may be handed on that began after the hold of token `since`.
    pub(super) fn heads(&self, name: &str, id: ClaimId, since: i64) -> Vec<Waiting> {
        self.heard().queues.heads(name, id, since)
    }

    /// Whether others have told that they wait for it.
    pub(super) fn is_waited_for(&self, name: &LockName) -> bool {
        let heard = self.heard();
        !heard.queues.is_empty() && heard.queues.is_waited_for(&written(name))
    }

    /// What this client held under `token`, after the hold of token `since`, is free.
    pub(super) fn has_freed(&self, name: &str, since: i64, token: i64) {
        self.heard().queues.freed(name, since, token);
    }

    /// The claim was seen to hold the lock, or to have held it last.
    pub(super) fn has_held(&self, name: &LockName, id: ClaimId) {
        let mut heard = self.heard();
        if !heard.queues.is_empty() {
            heard.queues.held(&written(name), id);
        }
    }

    /// These are not there any more.
    pub(super) fn dead(&self, name: &str, ids: impl IntoIterator<Item = ClaimId>) {
        self.heard().queues.dead(name, ids);
    }

    fn ear(&self, name: &LockName) -> Ear {
        let (name, told) = (written(name), Arc::<Told>::default());
        self.names().entry(name.clone()).or_default().push(Arc::downgrade(&told));
        Ear { ears: Weak::clone(&self.itself), name, told }
    }

    fn heard_of_all(&self) {
        self.names().values().flatten().filter_map(Weak::upgrade).for_each(|ear| ear.freed.notify_one());
    }

    /// Starts the task that listens: at the first ear, or when others were found to wait for us.
    pub(super) fn start(&self) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.as_ref().is_none_or(tokio::task::AbortHandle::is_finished) {
            *task = Some(tokio::spawn(tend(Weak::clone(&self.itself))).abort_handle());
        }
    }

    async fn connect(&self) -> sqlx::Result<(PgListener, i64)> {
        use sqlx::Executor as _;
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(self.limit)
            .idle_timeout(None)
            .max_lifetime(None)
            .connect_lazy_with(self.options.clone());
        let mut listener = PgListener::connect_with(&pool).await?;
        // It would listen again by itself only after some breaks, and tell of none of them.
        listener.eager_reconnect(false);
        listener.listen_all([&self.channel].into_iter().chain(&self.secret).map(String::as_str)).await?;
        // Each session has its own: what was told of an earlier one must find nobody there.
        let key = ClaimId::random().map_err(|_| sqlx::Error::WorkerCrashed)?.to_bytes();
        let [a, b, c, d, e, f, g, h, ..] = key;
        let key = i64::from_be_bytes([a, b, c, d, e, f, g, h]);
        let sql = format!("SELECT pg_advisory_lock('{key}'::bigint)");
        listener.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await?;
        Ok((listener, key))
    }
}

/// Gives back what was handed on to nobody, again and again until it has run out by itself.
async fn gives_back(store: Weak<Store>, name: LockName, handing: Handing, until: Instant) {
    let mut pause = PAUSES.0;
    while let Some(here) = store.upgrade() {
        let Err(error) = here.give_back(&name, handing.to, handing.token, handing.passed).await else { return };
        drop(here);
        tracing::debug!(target: "fencelock", engine = "postgres", %error, "not given back yet");
        if Instant::now() + pause >= until {
            return;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// Whether the server is still there; what it tells meanwhile is kept.
async fn answers(listener: &mut PgListener, limit: Duration) -> bool {
    use sqlx::Executor as _;
    let asked = tokio::time::timeout(limit, listener.execute(sqlx::raw_sql("SELECT 1")));
    matches!(asked.await, Ok(Ok(_)))
}

/// Listens until the ears are gone.
async fn tend(ears: Weak<Ears>) {
    let mut pause = PAUSES.0;
    loop {
        let Some(here) = ears.upgrade() else { return };
        let connected = tokio::time::timeout(here.limit, here.connect()).await;
        match connected {
            Ok(Ok((mut listener, key))) => {
                pause = PAUSES.0;
                here.listens(Some(key));
                here.heard_of_all();
                let (limit, quiet) = (here.limit, here.quiet);
                drop(here);
                // Anything but a notice is a break, after which notices are lost.
                loop {
                    let notice = match tokio::time::timeout(quiet, listener.try_recv()).await {
                        Ok(Ok(Some(notice))) => notice,
                        Ok(_) => break,
                        Err(_) if answers(&mut listener, limit).await => continue,
                        Err(_) => break,
                    };
                    let Some(here) = ears.upgrade() else { return };
                    here.hears(notice.channel(), notice.payload());
                }
                let Some(here) = ears.upgrade() else { return };
                here.listens(None);
            }
            Ok(Err(error)) => {
                let error = super::failure::failure(error).error;
                tracing::debug!(target: "fencelock", engine = "postgres", %error, "cannot listen");
            }
            Err(_) => tracing::debug!(target: "fencelock", engine = "postgres", "no answer to LISTEN"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

#[async_trait]
impl Hints for Ears {
    async fn listen(&self, name: &LockName) -> Result<Box<dyn Hint>> {
        self.start();
        let mut listening = self.listening.subscribe();
        let ready = listening.wait_for(|listening| *listening);
        if !matches!(tokio::time::timeout(self.limit, ready).await, Ok(Ok(_))) {
            return Err(Error::new(ErrorKind::Unavailable, "not listening").with_engine("postgres"));
        }
        Ok(Box::new(self.ear(name)))
    }
}

pub(super) struct Ear {
    ears: Weak<Ears>,
    name: String,
    told: Arc<Told>,
}

#[async_trait]
impl Hint for Ear {
    async fn heard(&mut self) {
        loop {
            let until = *self.told.until.lock().unwrap_or_else(PoisonError::into_inner);
            let ends = async {
                match until {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.told.freed.notified() => return,
                () = self.told.handed.notified() => {}
                () = ends => {
                    *self.told.until.lock().unwrap_or_else(PoisonError::into_inner) = None;
                    return;
                }
            }
        }
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        let Some(ears) = self.ears.upgrade() else { return };
        let mut names = ears.names();
        if let Some(ears) = names.get_mut(&self.name) {
            ears.retain(|ear| !std::ptr::eq(ear.as_ptr(), Arc::as_ptr(&self.told)));
            if ears.is_empty() {
                names.remove(&self.name);
            }
        }
    }
}

impl Drop for Ears {
    fn drop(&mut self) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = task.take() {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock_lab::{Mood, Postgres, Proxy};
    use sqlx::Connection as _;

    #[test]
    fn channels_are_short_and_differ() {
        let long = "x".repeat(57);
        assert!(channel(&long).len() <= 63);
        assert_ne!(channel(&long), channel("fencelock_locks"));
        assert_eq!(written(&LockName::new("é/").unwrap()), "c3a92f");
    }

    const QUIET: Duration = Duration::from_millis(150);
    const SOON: Duration = Duration::from_secs(20);

    async fn listening(ears: &Ears, so: bool) {
        let mut listening = ears.listening.subscribe();
        tokio::time::timeout(SOON, listening.wait_for(|listening| *listening == so)).await.unwrap().unwrap();
    }

    fn ears() -> (Postgres, Proxy, Arc<Ears>) {
        let server = Postgres::start().unwrap();
        let proxy = Proxy::before(server.address()).unwrap();
        let url = server.url().replace(&server.address().to_string(), &format!("127.0.0.1:{}", proxy.port()));
        let options = url.parse::<PgConnectOptions>().unwrap().application_name("ears");
        let ears = Ears::asking(options, "c".to_owned(), None, Duration::from_secs(2), QUIET);
        (server, proxy, ears)
    }

    async fn tell(server: &Postgres, name: &LockName) {
        let mut connection = sqlx::PgConnection::connect(&server.url()).await.unwrap();
        sqlx::query("SELECT pg_notify('c', $1)").bind(written(name)).execute(&mut connection).await.unwrap();
    }

    async fn listeners(server: &Postgres) -> Vec<i32> {
        let mut connection = sqlx::PgConnection::connect(&server.url()).await.unwrap();
        let sql = "SELECT pid FROM pg_stat_activity WHERE application_name = 'ears'";
        sqlx::query_scalar(sql).fetch_all(&mut connection).await.unwrap()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn one_connection_is_kept_while_it_answers_and_misses_nothing_meanwhile() {
        let (server, _proxy, ears) = ears();
        let name = LockName::new("a").unwrap();
        let mut ear = ears.listen(&name).await.unwrap();
        let first = listeners(&server).await;
        assert_eq!(first.len(), 1);
        // Whether it is there is asked again and again, and in between, and while it is asked, it hears.
        for _ in 0..60 {
            tell(&server, &name).await;
            tokio::time::timeout(SOON, ear.heard()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(fastrand::u64(20..40)) + QUIET / 2).await;
        }
        tokio::time::sleep(QUIET * 4).await;
        assert_eq!(listeners(&server).await, first);
        assert!(*ears.listening.borrow());
    }

    /// Nothing comes, no end of it either.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_connection_cut_without_a_word_is_replaced() {
        let (server, proxy, ears) = ears();
        let name = LockName::new("a").unwrap();
        let mut ear = ears.listen(&name).await.unwrap();
        proxy.set(Mood::DropReplies);
        listening(&ears, false).await;
        tell(&server, &name).await;
        proxy.set(Mood::Honest);
        listening(&ears, true).await;
        // What was missed is looked for, and what comes now is heard.
        tokio::time::timeout(SOON, ear.heard()).await.unwrap();
        tell(&server, &name).await;
        tokio::time::timeout(SOON, ear.heard()).await.unwrap();
    }
}
