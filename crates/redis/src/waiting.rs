//! Waiting in a lock's queue at the server.

use crate::ears::Ear;
use crate::engine::{RedisLock, Tried, told};
use crate::link::lock;
use crate::mail::{Handed, Place};
use async_trait::async_trait;
use fencelock_core::{Attempt, Claim, Moment, Result, Tries};
use std::sync::Mutex;
use std::time::Duration;

/// For how long whoever is not let in waits as if there were no queues.
const HOPELESS: Duration = Duration::from_secs(10);

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
    /// The server has it in its queue, as the last answer said.
    is_queued: bool,
    /// When the last request left that was answered that another holds it.
    refused: Option<Moment>,
    /// When it was not let in although it listens: for a while it waits as if there were no queues.
    hopeless: Option<Moment>,
}

impl State {
    /// What an attempt before this one was told is not for `claim`.
    fn forget_all_but(&mut self, claim: &Claim) {
        if self.place.take_if(|place| place.id != claim.id()).is_some() {
            self.is_queued = false;
            self.refused = None;
        }
    }

    fn is_hopeless(&self, now: Moment) -> bool {
        self.hopeless.is_some_and(|since| now.since(since) < HOPELESS)
    }
}

/// Whether what was handed can be relied on at `now`, for as long as it is at the most `most` old.
fn is_good(handed: Handed, refused: Option<Moment>, now: Moment, most: Duration) -> bool {
    // No token is a nudge to look, and no grant. A later request was answered that another holds it: a grant from
    // before that was over by then.
    handed.token.get() > 0 && refused.is_none_or(|at| handed.sent >= at) && now.since(handed.sent) <= most
}

impl<'e> Waiting<'e> {
    pub(crate) fn new(lock: &'e RedisLock) -> Self {
        Self { lock, state: Mutex::default() }
    }

    /// What was handed over, if it can be relied on as it is; if it cannot, asking again confirms it.
    fn handed_over(&self, claim: &Claim) -> Option<Handed> {
        let state = lock(&self.state);
        let handed = state.place.as_ref().filter(|place| place.id == claim.id())?.take()?;
        // An answer that never came calls for what the server does for an acquire alone, and so do replicas.
        if claim.is_unanswered() || self.lock.shared.store.config.wait_replicas > 0 {
            return None;
        }
        // It counts from then, at the latest: the lease cannot have begun before its request had come.
        // After more than that a renewal is overdue.
        let most = if claim.renews() { claim.ttl() * 2 / 5 } else { claim.ttl() / 20 };
        is_good(handed, state.refused, claim.now(), most).then_some(handed)
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
                let is_hopeless = state.is_hopeless(claim.now());
                if state.ear.is_none() && !is_hopeless {
                    state.ear = store.ears.if_listening(&channel, slot);
                }
                if let Some(ear) = &mut state.ear {
                    ear.catch_up();
                    state.place.get_or_insert_with(|| store.mail.place(claim.id()));
                }
                let place = state.place.as_ref().map(Place::again);
                let queue = (place.is_some() && !is_hopeless).then_some(&*channel);
                (place, queue)
            };
            let sent = claim.now();
            let (left, holder, is_queued) = match self.lock.attempt(claim, &keys, sent, queue, place).await? {
                Tried::Granted(grant) => return Ok(Attempt::Granted(grant)),
                Tried::Contended { left, holder, is_queued } => (left, holder, is_queued),
            };
            let is_over = {
                let mut state = lock(&self.state);
                (state.is_queued, state.refused) = (is_queued, Some(sent));
                // Nobody listens there, as far as that server knows: it is not the one it was, or may not be asked.
                if queue.is_some() && !is_queued {
                    state.ear = None;
                    state.hopeless = (!may_listen).then_some(sent);
                }
                is_queued || state.is_hopeless(sent)
            };
            if is_over || !std::mem::take(&mut may_listen) || !Box::pin(self.listens(&channel, slot)).await {
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
        lock(&self.state).is_queued
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

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock_core::FencingToken;

    #[test]
    fn what_is_no_grant_or_was_over_is_not_believed() {
        let at = |millis: u64| Moment::from_nanos(millis * 1_000_000);
        let handed = |token, sent| Handed { token: FencingToken::new(token), sent: at(sent) };
        let most = Duration::from_secs(15);
        assert!(is_good(handed(7, 500), None, at(1_000), most));
        assert!(is_good(handed(7, 500), Some(at(500)), at(1_000), most), "what it was handed for was refused before");
        assert!(!is_good(handed(7, 500), Some(at(501)), at(1_000), most), "over by then");
        assert!(!is_good(handed(7, 500), None, at(15_501), most), "too old");
        assert!(!is_good(handed(0, 0), None, at(1_000), most), "a nudge, and a machine that has just begun");
    }
}
