//! Waiting to be told: one subscription for what a client is handed, one a name for who has no place in a
//! queue, all of a client's on its one connection.

use crate::failure::Failure;
use crate::keys::Keys;
use crate::link::{Link, WireId, lock};
use crate::mail::Mail;
use crate::router::Router;
use async_trait::async_trait;
use fencelock_core::{Hint, Hints, LockName, Result};
use redis::Value;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// How long a channel is listened to after its last waiter has gone: the next one mostly comes at once.
const LINGER: Duration = Duration::from_secs(1);
/// The same where all of a client's waiters share one: a lock that is contended now and then finds it there.
const LINGER_SHARED: Duration = Duration::from_secs(60);
/// The most channels in one command.
const BATCH: usize = 256;
/// What lies between attempts to listen again: from the first to the second, doubling.
const PAUSES: (Duration, Duration) = (Duration::from_millis(25), Duration::from_millis(500));

/// The channels that this client listens to, counted by their waiters.
pub(crate) struct Ears {
    keys: Keys,
    limit: Duration,
    channels: Mutex<HashMap<String, Channel>>,
    changed: Arc<Notify>,
    router: OnceLock<Arc<Router>>,
    mail: OnceLock<Arc<Mail>>,
    itself: Weak<Self>,
}

struct Channel {
    waiters: usize,
    slot: u16,
    /// For how long it stays after the last waiter.
    linger: Duration,
    /// When the last waiter went.
    idle: Option<Instant>,
    on: Option<(Link, Arc<WireId>)>,
    /// A subscription is under way.
    asking: bool,
    /// After one that failed: when the next is tried, and what then lies before the one after it.
    again: Option<(Instant, Duration)>,
    said: watch::Sender<Said>,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Said {
    /// Grows whenever the name may have become free.
    times: u64,
    listening: bool,
    /// Grows whenever listening could not be begun.
    failures: u64,
}

impl Channel {
    fn is_deaf(&self) -> bool {
        !self.on.as_ref().is_some_and(|(_, id)| id.is_alive())
    }

    /// It listens to a node that does not have the slot any more.
    fn is_astray(&self, router: &Router) -> bool {
        self.on.as_ref().is_some_and(|(link, _)| router.known(self.slot).is_some_and(|known| !known.is(link)))
    }

    /// Whether whoever has the slot is listened to now.
    fn listens(&self, router: &Router) -> bool {
        self.said.borrow().listening && !self.is_deaf() && !self.is_astray(router)
    }
}

impl Ears {
    pub(crate) fn new(keys: Keys, limit: Duration) -> Arc<Self> {
        Arc::new_cyclic(|itself| Self {
            keys,
            limit,
            channels: Mutex::default(),
            changed: Arc::default(),
            router: OnceLock::new(),
            mail: OnceLock::new(),
            itself: Weak::clone(itself),
        })
    }

    /// Starts the task that subscribes; it ends when the ears are gone.
    pub(crate) fn attach(self: &Arc<Self>, router: &Arc<Router>) {
        if self.router.set(Arc::clone(router)).is_ok() {
            tokio::spawn(tend(Arc::downgrade(self), Arc::clone(&self.changed)));
        }
    }

    /// From here on messages that say something are delivered there.
    pub(crate) fn deliver_to(&self, mail: &Arc<Mail>) {
        let _ = self.mail.set(Arc::clone(mail));
    }

    /// A message on a channel.
    pub(crate) fn heard(&self, channel: &Value, message: Option<&Value>) {
        if let (Some(mail), Some(Value::BulkString(message))) = (self.mail.get(), message)
            && !message.is_empty()
        {
            return mail.delivered(message);
        }
        let Value::BulkString(channel) = channel else { return };
        let Ok(channel) = std::str::from_utf8(channel) else { return };
        if let Some(channel) = lock(&self.channels).get(channel) {
            channel.said.send_modify(|said| said.times += 1);
        }
    }

    /// A connection has gone, and with it what was subscribed there.
    pub(crate) fn deafened(&self) {
        self.changed.notify_one();
    }

    fn join(&self, name: String, slot: u16, linger: Duration) -> Ear {
        let mut channels = lock(&self.channels);
        let channel = channels.entry(name.clone()).or_insert_with(|| Channel {
            waiters: 0,
            slot,
            linger,
            idle: None,
            on: None,
            asking: false,
            again: None,
            said: watch::Sender::new(Said::default()),
        });
        // Cut off, or on another node than it should be, and not noticed by the task yet.
        if self.router.get().is_some_and(|router| channel.on.is_some() && !channel.listens(router)) {
            channel.said.send_if_modified(|said| std::mem::replace(&mut said.listening, false));
        }
        channel.waiters += 1;
        channel.idle = None;
        let said = channel.said.subscribe();
        let times = said.borrow().times;
        Ear { ears: Weak::clone(&self.itself), channel: name, heard: Heard { said, times } }
    }

    fn leave(&self, name: &str) {
        if let Some(channel) = lock(&self.channels).get_mut(name) {
            channel.waiters = channel.waiters.saturating_sub(1);
            if channel.waiters == 0 {
                channel.idle = Some(Instant::now());
                self.changed.notify_one();
            }
        }
    }

    /// How many channels there are.
    pub(crate) fn len(&self) -> usize {
        lock(&self.channels).len()
    }

    /// Begins to listen to what nobody listens to yet; says when to look again.
    /// Each server is asked by itself, so that one which hangs holds up no other.
    fn listen_to_all(&self, router: &Arc<Router>) -> Option<Instant> {
        let (now, mut next) = (Instant::now(), None);
        let mut batches: Vec<(Option<Link>, u16, Vec<String>)> = Vec::new();
        for (name, channel) in lock(&self.channels).iter_mut() {
            if channel.waiters == 0 || channel.asking || !channel.is_deaf() && !channel.is_astray(router) {
                continue;
            }
            if let Some((link, id)) = channel.on.take().filter(|(_, id)| id.is_alive()) {
                let (names, limit) = ([name.clone()], self.limit);
                tokio::spawn(async move { link.unsubscribe(&names, &id, Instant::now() + limit).await });
            }
            channel.said.send_if_modified(|said| std::mem::replace(&mut said.listening, false));
            if let Some((again, _)) = channel.again.filter(|(again, _)| *again > now) {
                next = earlier(next, again);
                continue;
            }
            channel.asking = true;
            let link = router.known(channel.slot);
            let same = |to: &Option<Link>| match (to, &link) {
                (Some(to), Some(link)) => to.is(link),
                (None, None) => true,
                _ => false,
            };
            match batches.iter_mut().find(|(to, _, names)| same(to) && names.len() < BATCH) {
                Some((.., names)) => names.push(name.clone()),
                None => batches.push((link, channel.slot, vec![name.clone()])),
            }
        }
        for (link, slot, names) in batches {
            tokio::spawn(subscribe(Weak::clone(&self.itself), Arc::clone(router), link, slot, names, self.limit));
        }
        next
    }

    fn mark(&self, names: &[String], outcome: &Subscribed) {
        let mut channels = lock(&self.channels);
        for name in names {
            let Some(channel) = channels.get_mut(name) else { continue };
            channel.asking = false;
            match outcome {
                Subscribed::On(link, id) => {
                    channel.on = Some((link.clone(), Arc::clone(id)));
                    channel.again = None;
                    channel.said.send_modify(|said| {
                        said.listening = true;
                        // Whatever was told while nobody listened is only seen by asking.
                        said.times += 1;
                    });
                }
                Subscribed::Routed => {}
                Subscribed::Failed => {
                    let pause = channel.again.map_or(PAUSES.0, |(_, pause)| pause);
                    channel.again = Some((Instant::now() + pause, (pause * 2).min(PAUSES.1)));
                    channel.said.send_modify(|said| said.failures += 1);
                }
            }
        }
        drop(channels);
        self.changed.notify_one();
    }

    /// Stops listening where nobody waits any more; says when to look again.
    fn let_go(&self) -> Option<Instant> {
        let mut gone: Vec<(Link, Arc<WireId>, Vec<String>)> = Vec::new();
        let (now, mut next) = (Instant::now(), None);
        lock(&self.channels).retain(|name, channel| {
            let Some(until) = channel.idle.map(|since| since + channel.linger) else { return true };
            if until > now {
                next = earlier(next, until);
                return true;
            }
            if channel.asking {
                return true; // told when that is done
            }
            let Some((link, id)) = channel.on.take() else { return false };
            // Whoever begins to wait meanwhile is subscribed when this is done, never before it.
            channel.asking = true;
            channel.said.send_if_modified(|said| std::mem::replace(&mut said.listening, false));
            match gone.iter_mut().find(|(to, on, names)| to.is(&link) && Arc::ptr_eq(on, &id) && names.len() < BATCH) {
                Some((.., names)) => names.push(name.clone()),
                None => gone.push((link, id, vec![name.clone()])),
            }
            true
        });
        for (link, id, names) in gone {
            tokio::spawn(unsubscribe(Weak::clone(&self.itself), link, id, names, self.limit));
        }
        next
    }
}

fn earlier(one: Option<Instant>, other: Instant) -> Option<Instant> {
    Some(one.map_or(other, |one| one.min(other)))
}

/// What became of a subscription.
enum Subscribed {
    On(Link, Arc<WireId>),
    /// It is known now who has the slot; nobody was asked yet.
    Routed,
    Failed,
}

async fn subscribe(
    ears: Weak<Ears>,
    router: Arc<Router>,
    link: Option<Link>,
    slot: u16,
    names: Vec<String>,
    limit: Duration,
) {
    let deadline = Instant::now() + limit;
    let outcome = match link {
        None => router.route(slot, deadline).await.map_or(Subscribed::Failed, |_| Subscribed::Routed),
        Some(link) => match link.subscribe(&names, deadline).await {
            Ok(id) => Subscribed::On(link, id),
            Err(_) => Subscribed::Failed,
        },
    };
    if matches!(outcome, Subscribed::Failed) {
        router.refresh();
    }
    if let Some(ears) = ears.upgrade() {
        ears.mark(&names, &outcome);
    }
}

async fn unsubscribe(ears: Weak<Ears>, link: Link, id: Arc<WireId>, names: Vec<String>, limit: Duration) {
    link.unsubscribe(&names, &id, Instant::now() + limit).await;
    let Some(ears) = ears.upgrade() else { return };
    let mut channels = lock(&ears.channels);
    for name in &names {
        if let Some(channel) = channels.get_mut(name) {
            channel.asking = false;
            if channel.waiters == 0 {
                channels.remove(name);
            }
        }
    }
    drop(channels);
    ears.changed.notify_one();
}

/// The task: subscribes what is new or was cut off, unsubscribes what has gone.
async fn tend(ears: Weak<Ears>, changed: Arc<Notify>) {
    loop {
        let next = {
            let Some(ears) = ears.upgrade() else { return };
            let Some(router) = ears.router.get() else { return };
            let (again, gone) = (ears.listen_to_all(router), ears.let_go());
            again.map_or(gone, |again| earlier(gone, again))
        };
        match next {
            Some(next) => {
                let _ = tokio::time::timeout_at(next, changed.notified()).await;
            }
            None => changed.notified().await,
        }
    }
}

impl Drop for Ears {
    fn drop(&mut self) {
        self.changed.notify_one();
    }
}

#[async_trait]
impl Hints for Ears {
    async fn listen(&self, name: &LockName) -> Result<Box<dyn Hint>> {
        let keys = self.keys.of(name);
        self.listen_on(keys.channel(), keys.slot()).await
    }
}

impl Ears {
    /// Listens on a channel of whoever has `slot`.
    pub(crate) async fn listen_on(&self, channel: String, slot: u16) -> Result<Box<dyn Hint>> {
        Ok(Box::new(self.begin(self.join(channel, slot, LINGER)).await?))
    }

    /// Listens on a channel that waiters of this client share.
    pub(crate) async fn ear_on(&self, channel: String, slot: u16) -> Result<Ear> {
        self.begin(self.join(channel, slot, LINGER_SHARED)).await
    }

    /// The same, if it is listened to anyway.
    pub(crate) fn if_listening(&self, channel: &str, slot: u16) -> Option<Ear> {
        let router = self.router.get()?;
        let listens = lock(&self.channels).get(channel).is_some_and(|channel| channel.listens(router));
        listens.then(|| {
            let mut ear = self.join(channel.to_owned(), slot, LINGER_SHARED);
            ear.catch_up();
            ear
        })
    }

    async fn begin(&self, mut ear: Ear) -> Result<Ear> {
        let failures = ear.heard.said.borrow().failures;
        if !ear.heard.said.borrow().listening {
            self.changed.notify_one();
            let ready = ear.heard.said.wait_for(|said| said.listening || said.failures != failures);
            match tokio::time::timeout(self.limit, ready).await {
                Ok(Ok(said)) if said.listening => {}
                _ => return Err(Failure::not_reached("nobody listens for releases").into()),
            }
        }
        ear.catch_up();
        Ok(ear)
    }
}

/// One waiter's ear.
pub(crate) struct Ear {
    ears: Weak<Ears>,
    channel: String,
    heard: Heard,
}

/// What of a channel was heard.
#[derive(Clone)]
pub(crate) struct Heard {
    said: watch::Receiver<Said>,
    times: u64,
}

impl Heard {
    /// Ends when there is something that was not heard.
    pub(crate) async fn more(&mut self) {
        let times = self.times;
        match self.said.wait_for(|said| said.times != times).await.map(|said| said.times) {
            Ok(times) => self.times = times,
            Err(_) => std::future::pending().await,
        }
    }
}

impl Ear {
    /// What was said until now counts as heard.
    pub(crate) fn catch_up(&mut self) {
        self.heard.times = self.heard.said.borrow_and_update().times;
    }

    /// To hear the same elsewhere, for as long as this one lives.
    pub(crate) fn heard(&self) -> Heard {
        self.heard.clone()
    }
}

#[async_trait]
impl Hint for Ear {
    async fn heard(&mut self) {
        self.heard.more().await;
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        if let Some(ears) = self.ears.upgrade() {
            ears.leave(&self.channel);
        }
    }
}

impl fmt::Debug for Ears {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ears").field("channels", &self.len()).finish()
    }
}
