//! One session at the servers, and what is asked in it.

use crate::config::{Access, ZooKeeperConfig};
use crate::failure::{Failure, answer};
use crate::heartbeat::Pulse;
use crate::holds::Holds;
use crate::keys::{Entry, Keys};
use crate::link::{self, Purpose};
use crate::members::Members;
use crate::probe::Probe;
use crate::tempo::Tempo;
use fencelock_core::{ClaimId, Clock, Error, ErrorKind, Guarantees, Moment, Result};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, SessionState};

/// A session. It ends for good when the servers say so, when its own node is
/// gone, or when it is dropped.
///
/// # Drop
/// Closes the session at the servers if they can be reached, which removes its nodes.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) keys: Keys,
    pub(crate) tempo: Tempo,
    pub(crate) holds: Holds,
    pub(crate) id: i64,
    config: ZooKeeperConfig,
    acls: Acls<'static>,
    pub(crate) pulse: Pulse,
    known: Mutex<Known>,
    /// A time by the servers' clock in milliseconds, and when it was had.
    hour: Mutex<Option<(i64, Moment)>>,
    ended: watch::Sender<bool>,
}

/// What is known of the servers.
#[derive(Clone, Debug)]
struct Known {
    members: Members,
    guarantees: Arc<Guarantees>,
}

impl Session {
    /// Opens a session, makes what is missing under the root, checks the layout
    /// and probes the deployment. What is known of servers from `before` counts where they do not answer now.
    pub(crate) async fn open(config: &ZooKeeperConfig, before: Option<&Self>) -> Result<Arc<Self>> {
        match tokio::time::timeout(config.connect_timeout, Self::opened(config, before)).await {
            Ok(opened) => opened,
            Err(_) => Err(unavailable(format!("no session in {:?}", config.connect_timeout))),
        }
    }

    async fn opened(config: &ZooKeeperConfig, before: Option<&Self>) -> Result<Arc<Self>> {
        let known = before.map(|before| before.known().members.clone()).unwrap_or_default();
        let members = Members::ask(config, &known).await?;
        let (lag, asked) = (members.lag(config), members.session());
        let silence = Tempo::new(asked, lag).silence();
        let (clock, keys) = (Clock::system(), Keys::under(config.root.as_str()));
        let sent = clock.now();
        let client = link::open(config, &members.cluster(), asked, Purpose::Keep { silence }).await?;
        let tempo = Tempo::new(client.session_timeout().min(asked), lag);
        let found = Probe::unasked(tempo.session, &members, config).guarantees();
        let session = Arc::new(Self {
            tempo,
            id: client.session_id().0,
            client,
            keys,
            holds: Holds::default(),
            config: config.clone(),
            acls: if config.access() == Access::Creator { Acls::creator_all() } else { Acls::anyone_all() },
            pulse: Pulse::since(clock, sent, tempo.margin),
            known: Mutex::new(Known { members, guarantees: Arc::new(found) }),
            hour: Mutex::default(),
            ended: watch::Sender::new(false),
        });
        session.settle().await?;
        // The first one may find out that heartbeats have to write here.
        if session.fresh(Duration::ZERO).await.is_err() {
            session.fresh(Duration::ZERO).await?;
        }
        let members = session.known().members.clone();
        let guarantees = Probe::run(&session, &members, config).await.guarantees();
        session.known().guarantees = Arc::new(match before {
            None => guarantees.attest(&config.attested)?,
            Some(_) => guarantees.attest_again(&config.attested),
        });
        tokio::spawn(crate::keeper::keep(&session));
        Ok(session)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn guarantees(&self) -> Arc<Guarantees> {
        Arc::clone(&self.known().guarantees)
    }

    /// Asks the servers anew. A session that one of them would shorten, or that
    /// one of them may answer in for longer than was thought, ends.
    pub(crate) async fn probe(&self) -> Result<Arc<Guarantees>> {
        let before = self.known().members.clone();
        let members = Members::ask(&self.config, &before).await?;
        let (session, lag) = (members.session().min(self.tempo.session), members.lag(&self.config));
        if Tempo::new(session, lag).usable() < self.tempo.usable() {
            self.end("a server gives less time, or may lag for longer, than was known");
        }
        let found = Probe::run(self, &members, &self.config).await.guarantees().attest_again(&self.config.attested);
        let guarantees = Arc::new(found);
        *self.known() = Known { members, guarantees: Arc::clone(&guarantees) };
        Ok(guarantees)
    }

    /// A session that nobody keeps alive and that the servers end `after` it was opened, or somewhat later.
    pub(crate) async fn open_brief(&self, after: Duration) -> Result<Client> {
        let servers = self.known().members.cluster();
        let opening = link::open(&self.config, &servers, after, Purpose::Leave);
        let client = match tokio::time::timeout(self.config.connect_timeout, opening).await {
            Ok(opened) => opened?,
            Err(_) => return Err(unavailable(format!("no session in {:?}", self.config.connect_timeout))),
        };
        if client.session_timeout() < after {
            let given = client.session_timeout();
            return Err(unavailable(format!("the servers end a session after {given:?}, {after:?} was asked for")));
        }
        Ok(client)
    }

    /// A node was made just now, at `ctime` by the servers' clock.
    pub(crate) fn heard_the_hour(&self, ctime: i64) {
        let now = self.pulse.clock().now();
        *self.hour.lock().unwrap_or_else(PoisonError::into_inner) = Some((ctime, now));
    }

    /// How long ago `ctime` was, by the servers' clock as far as this session has heard it. Shown,
    /// and nothing is decided by it.
    pub(crate) fn ago(&self, ctime: i64) -> Option<Duration> {
        let (hour, heard) = (*self.hour.lock().unwrap_or_else(PoisonError::into_inner))?;
        let before = hour.saturating_sub(ctime);
        let since = self.pulse.clock().now().since(heard);
        // Made after the hour was heard: so much less.
        Some(match u64::try_from(before) {
            Ok(before) => since.saturating_add(Duration::from_millis(before)),
            Err(_) => since.saturating_sub(Duration::from_millis(before.unsigned_abs())),
        })
    }

    pub(crate) fn with_mode(&self, mode: CreateMode) -> CreateOptions<'static> {
        mode.with_acls(self.acls)
    }

    pub(crate) fn limit(&self) -> Duration {
        self.config.request_timeout
    }

    pub(crate) fn owns(&self, owner: i64) -> bool {
        owner == self.id
    }

    /// Awaits a request under the request time-out.
    pub(crate) async fn call<T>(
        &self,
        request: impl Future<Output = Result<T, zookeeper_client::Error>>,
    ) -> Result<T, Failure> {
        answer(self.limit(), request).await
    }

    /// A deletion, for which it is all one who deleted it; true if it was this request.
    pub(crate) async fn gone(
        &self,
        deletion: impl Future<Output = Result<(), zookeeper_client::Error>>,
    ) -> Result<bool, Failure> {
        match self.call(deletion).await {
            Ok(()) => Ok(true),
            Err(Failure::NoNode) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Waits until there is a connection: what is asked before would only be
    /// sent later, perhaps long after anybody wants it.
    pub(crate) async fn connected(&self) -> Result<(), Failure> {
        let mut states = self.client.state_watcher();
        let connected = async {
            let mut state = states.state();
            loop {
                match state {
                    SessionState::SyncConnected => return Ok(()),
                    state if state.is_terminated() => return Err(Failure::Unknown(format!("session {state}"))),
                    _ => state = states.changed().await,
                }
            }
        };
        match tokio::time::timeout(self.limit(), connected).await {
            Ok(state) => state,
            Err(_) => Err(Failure::Unknown(format!("not connected for {:?}", self.limit()))),
        }
    }

    /// The claims on a queue as this session's server knows them.
    pub(crate) async fn list(&self, queue: &str) -> Result<Vec<Entry>, Failure> {
        entries(self.call(self.client.list_children(queue)).await)
    }

    /// The claims on a queue, after everything that was sent before has come to its effect or never will.
    pub(crate) async fn list_synced(&self, queue: &str) -> Result<Vec<Entry>, Failure> {
        self.connected().await?;
        // Asked in this order, and answered in this order.
        let (sync, list) = (self.client.sync(queue), self.client.list_children(queue));
        let (synced, listed) = tokio::join!(self.call(sync), self.call(list));
        synced?;
        entries(listed)
    }

    /// Removes every node of a claim from a queue, whichever session made it.
    pub(crate) async fn purge(&self, queue: &str, id: ClaimId) -> Result<(), Failure> {
        for entry in self.list_synced(queue).await?.iter().filter(|entry| entry.is_of(id)) {
            self.gone(self.client.delete(&format!("{queue}/{}", entry.node), None)).await?;
        }
        Ok(())
    }

    pub(crate) fn end(&self, why: &str) {
        if !self.ended.send_replace(true) {
            tracing::warn!(target: "fencelock", event = "session_ended", session = format!("{:#x}", self.id), why, "session ended");
            self.holds.wake();
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        *self.ended.borrow() || self.client.state().is_terminated()
    }

    /// Ends when the session has.
    pub(crate) fn until_ended(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut ended = self.ended.subscribe();
        async move {
            // The sender gone, nobody keeps the session any more.
            let _ = ended.wait_for(|ended| *ended).await;
        }
    }
}

fn entries(listed: Result<Vec<String>, Failure>) -> Result<Vec<Entry>, Failure> {
    match listed {
        Ok(nodes) => Ok(nodes.iter().filter_map(|node| Entry::parse(node)).collect()),
        Err(Failure::NoNode) => Ok(Vec::new()),
        Err(e) => Err(e),
    }
}

pub(crate) fn unavailable(message: String) -> Error {
    Error::new(ErrorKind::Unavailable, message)
}
