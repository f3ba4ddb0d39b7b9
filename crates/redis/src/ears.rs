//! Waiting to be told: one subscription a lock name, all of a client's on its one connection.

use crate::failure::Failure;
use crate::keys::Keys;
use crate::link::{Link, WireId, lock};
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
    itself: Weak<Self>,
}

struct Channel {
    waiters: usize,
    slot: u16,
    /// When the last waiter went.
    idle: Option<Instant>,
    on: Option<(Link, Arc<WireId>)>,
    said: watch::Sender<Said>,
}

#[derive(Clone, Copy, Default)]
struct Said {
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
}

impl Ears {
    pub(crate) fn new(keys: Keys, limit: Duration) -> Arc<Self> {
        Arc::new_cyclic(|itself| Self {
            keys,
            limit,
            channels: Mutex::default(),
            changed: Arc::default(),
            router: OnceLock::new(),
            itself: Weak::clone(itself),
        })
    }

    /// Starts the task that subscribes; it ends when the ears are gone.
    pub(crate) fn attach(self: &Arc<Self>, router: &Arc<Router>) {
        if self.router.set(Arc::clone(router)).is_ok() {
            tokio::spawn(tend(Arc::downgrade(self), Arc::clone(&self.changed)));
        }
    }

    /// A message on a channel.
    pub(crate) fn heard(&self, channel: &Value) {
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

    fn join(&self, name: String, slot: u16) -> Ear {
        let mut channels = lock(&self.channels);
        let channel = channels.entry(name.clone()).or_insert_with(|| Channel {
            waiters: 0,
            slot,
            idle: None,
            on: None,
            said: watch::Sender::new(Said::default()),
        });
        channel.waiters += 1;
        channel.idle = None;
        let said = channel.said.subscribe();
        let heard = said.borrow().times;
        Ear { ears: Weak::clone(&self.itself), channel: name, said, heard }
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

    /// Begins to listen to what nobody listens to yet; true if that did not work everywhere.
    async fn listen_to_all(&self, router: &Router) -> bool {
        let deaf: Vec<_> = lock(&self.channels)
            .iter_mut()
            .filter(|(_, channel)| channel.waiters > 0 && channel.is_deaf())
            .map(|(name, channel)| {
                channel.on = None;
                channel.said.send_if_modified(|said| std::mem::replace(&mut said.listening, false));
                (name.clone(), channel.slot)
            })
            .collect();
        let mut failed = false;
        let mut batches: Vec<(Link, Vec<String>)> = Vec::new();
        for (name, slot) in deaf {
            match router.route(slot, Instant::now() + self.limit).await {
                Ok(link) => match batches.iter_mut().find(|(to, names)| to.is(&link) && names.len() < BATCH) {
                    Some((_, names)) => names.push(name),
                    None => batches.push((link, vec![name])),
                },
                Err(_) => {
                    self.mark(&[name], None);
                    failed = true;
                }
            }
        }
        for (link, names) in batches {
            let outcome: std::result::Result<Arc<WireId>, Failure> =
                link.subscribe(&names, Instant::now() + self.limit).await;
            failed |= outcome.is_err();
            self.mark(&names, outcome.ok().map(|id| (link, id)));
        }
        failed
    }

    fn mark(&self, names: &[String], on: Option<(Link, Arc<WireId>)>) {
        let mut channels = lock(&self.channels);
        for name in names {
            if let Some(channel) = channels.get_mut(name) {
                channel.on.clone_from(&on);
                channel.said.send_modify(|said| {
                    said.listening = on.is_some();
                    // Whatever was told while nobody listened is only seen by asking.
                    said.times += u64::from(on.is_some());
                    said.failures += u64::from(on.is_none());
                });
            }
        }
    }

    /// Stops listening where nobody waits any more; says when to look again.
    async fn let_go(&self) -> Option<Instant> {
        let mut gone: Vec<(Link, Arc<WireId>, Vec<String>)> = Vec::new();
        let mut next = None;
        lock(&self.channels).retain(|name, channel| {
            let Some(until) = channel.idle.map(|since| since + LINGER) else { return true };
            if until > Instant::now() {
                next = Some(next.map_or(until, |next: Instant| next.min(until)));
                return true;
            }
            if let Some((link, id)) = channel.on.take() {
                match gone
                    .iter_mut()
                    .find(|(to, on, names)| to.is(&link) && Arc::ptr_eq(on, &id) && names.len() < BATCH)
                {
                    Some((.., names)) => names.push(name.clone()),
                    None => gone.push((link, id, vec![name.clone()])),
                }
            }
            false
        });
        for (link, id, names) in gone {
            link.unsubscribe(&names, &id, Instant::now() + self.limit).await;
        }
        next
    }
}

/// The task: subscribes what is new or was cut off, unsubscribes what has gone.
async fn tend(ears: Weak<Ears>, changed: Arc<Notify>) {
    let mut pause = PAUSES.0;
    loop {
        let next = {
            let Some(ears) = ears.upgrade() else { return };
            let Some(router) = ears.router.get() else { return };
            let failed = ears.listen_to_all(router).await;
            let next = ears.let_go().await;
            if failed {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSES.1);
                continue;
            }
            pause = PAUSES.0;
            next
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
        let mut ear = self.join(channel, slot);
        let failures = ear.said.borrow().failures;
        if !ear.said.borrow().listening {
            self.changed.notify_one();
            let ready = ear.said.wait_for(|said| said.listening || said.failures != failures);
            match tokio::time::timeout(self.limit, ready).await {
                Ok(Ok(said)) if said.listening => {}
                _ => return Err(Failure::not_reached("nobody listens for releases").into()),
            }
        }
        ear.heard = ear.said.borrow_and_update().times;
        Ok(Box::new(ear))
    }
}

/// One waiter's ear.
struct Ear {
    ears: Weak<Ears>,
    channel: String,
    said: watch::Receiver<Said>,
    heard: u64,
}

#[async_trait]
impl Hint for Ear {
    async fn heard(&mut self) {
        let heard = self.heard;
        match self.said.wait_for(|said| said.times != heard).await.map(|said| said.times) {
            Ok(times) => self.heard = times,
            Err(_) => std::future::pending().await,
        }
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
