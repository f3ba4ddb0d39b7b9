//! Waiting in a lock's queue at the server.

use crate::ears::Ear;
use crate::engine::{RedisLock, Tried, told};
use crate::link::lock;
use crate::mail::{Handed, Place};
use async_trait::async_trait;
use fencelock_core::{Attempt, Claim, Moment, Result, Tries};
use std::sync::Mutex;

/// One wait: the first waiter of a name in this client asks through it.
pub(crate) struct Waiting<'e> {
    lock: &'e RedisLock,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Where it is told of a grant, and of having been deaf.
    ear: Option<Ear>,
    place: Option<Place>,
    /// The server has it in its queue, as the last answer said; when that was asked.
    queued: Option<Moment>,
    /// It was not let in although it listens: it waits as if there were no queues.
    is_hopeless: bool,
}

impl State {
    /// What an attempt before this one was told is not for `claim`.
    fn forget_all_but(&mut self, claim: &Claim) {
        if self.place.take_if(|place| place.id != claim.id()).is_some() {
            self.queued = None;
        }
    }
}

impl<'e> Waiting<'e> {
    pub(crate) fn new(lock: &'e RedisLock) -> Self {
        Self { lock, state: Mutex::default() }
    }

    /// What was handed over, if it can be relied on as it is; if it cannot, asking again confirms it.
    fn handed_over(&self, claim: &Claim) -> Option<Handed> {
        let state = lock(&self.state);
        let handed = state.place.as_ref().filter(|place| place.id == claim.id())?.take()?;
        // A later request was answered that it is held by another: that grant was over by then.
        if state.queued.is_some_and(|queued| handed.sent < queued) {
            return None;
        }
        // An answer that never came calls for what the server does for an acquire alone, and so do replicas.
        if claim.is_unanswered() || self.lock.shared.store.config.wait_replicas > 0 {
            return None;
        }
        // It counts from then, at the latest: the lease cannot have begun before its request had come.
        let spent = claim.now().since(handed.sent);
        let most = if claim.renews() { claim.ttl() / 2 } else { claim.ttl() / 20 };
        (spent <= most).then_some(handed)
    }

    /// Begins to listen, unless it does. False if it is not told.
    async fn listens(&self, channel: &str, slot: u16) -> bool {
        match self.lock.shared.store.ears.ear_on(channel.to_owned(), slot).await {
            Ok(ear) => {
                lock(&self.state).ear = Some(ear);
                true
            }
            Err(_) => false,
        }
    }

    async fn ask(&self, claim: &Claim) -> Result<Attempt> {
        let store = &self.lock.shared.store;
        let keys = store.keys.of(claim.name());
        let (channel, slot) = store.mail.channel(&keys, store.router.is_cluster());
        let mut may_listen = true;
        loop {
            let (place, queue) = {
                let mut state = lock(&self.state);
                state.forget_all_but(claim);
                if state.ear.is_none() && !state.is_hopeless {
                    state.ear = store.ears.if_listening(&channel, slot);
                }
                if let Some(ear) = &mut state.ear {
                    ear.catch_up();
                    state.place.get_or_insert_with(|| store.mail.place(claim.id()));
                }
                let place = state.place.as_ref().map(Place::again);
                let queue = (place.is_some() && !state.is_hopeless).then_some(&*channel);
                (place, queue)
            };
            let sent = claim.now();
            let (left, holder, is_queued) = match self.lock.attempt(claim, &keys, sent, queue, place).await? {
                Tried::Granted(grant) => return Ok(Attempt::Granted(grant)),
                Tried::Contended { left, holder, is_queued } => (left, holder, is_queued),
            };
            let is_over = {
                let mut state = lock(&self.state);
                state.queued = is_queued.then_some(sent);
                // Nobody listens there, as far as that server knows: it is not the one it was, or may not be asked.
                if queue.is_some() && !is_queued {
                    state.ear = None;
                    state.is_hopeless = !may_listen;
                }
                is_queued || state.is_hopeless
            };
            if is_over || !std::mem::take(&mut may_listen) || !self.listens(&channel, slot).await {
                return Ok(Attempt::contended(left, holder));
            }
        }
    }
}

#[async_trait]
impl Tries for Waiting<'_> {
    async fn try_once(&self, claim: &Claim) -> Result<Attempt> {
        if let Some(handed) = self.handed_over(claim) {
            let place = lock(&self.state).place.as_ref().map(Place::again);
            return Ok(Attempt::Granted(self.lock.grant(claim, handed.token, handed.sent, place)));
        }
        self.ask(claim).await.map_err(|e| told(e, claim))
    }

    fn is_queued(&self) -> bool {
        lock(&self.state).queued.is_some()
    }

    async fn handed(&self) {
        let (place, deaf) = {
            let state = lock(&self.state);
            (state.place.as_ref().map(Place::again), state.ear.as_ref().map(Ear::heard))
        };
        let handed = async {
            match &place {
                Some(place) => place.handed().await,
                None => std::future::pending().await,
            }
        };
        let heard_again = async {
            match deaf {
                Some(mut heard) => heard.more().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = handed => {}
            () = heard_again => {}
        }
    }
}
