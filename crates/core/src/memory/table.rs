//! The locks themselves: who holds, who waits, decided by the server's clock.

use super::voids::Voids;
use crate::claim::Nobody;
use crate::{Claim, ClaimId, FencingToken, HolderInfo, LockName, Moment, Waiter};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// How long a waiter that is not heard of keeps its place.
const WAITER_LEASE: Duration = Duration::from_secs(15);

/// What an acquire came to at the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Granted(FencingToken),
    Contended {
        expires_in: Duration,
        /// Nobody, while the lock stays closed after a forced release.
        holder: Option<Arc<str>>,
    },
    /// The id was released, abandoned or has expired.
    Dead,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    locks: BTreeMap<LockName, Entry>,
    voids: Voids,
    last_token: u64,
    /// Whose the claims are that are kept here.
    nobody: Nobody,
    /// The network has been told to duplicate: a copy of anything may be on its way.
    copies: bool,
}

#[derive(Debug, Default)]
struct Entry {
    held: Option<Held>,
    /// The end of a lock delay that a forced release has left behind.
    closed_until: Option<Moment>,
    queue: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Held {
    claim: Claim,
    token: FencingToken,
    since: Moment,
    expires: Moment,
}

#[derive(Debug)]
struct Waiting {
    claim: Claim,
    since: Moment,
    heard: Moment,
    wake: Arc<Notify>,
}

impl Table {
    /// Grants the lock, or says who has it; with `wake`, waits in the queue.
    pub(super) fn acquire(&mut self, claim: &Claim, wake: Option<&Arc<Notify>>, now: Moment) -> Answer {
        self.settle(claim.name(), now);
        if self.voids.contains(claim.id()) {
            return Answer::Dead;
        }
        let entry = self.locks.entry(claim.name().clone()).or_default();
        if let Some(held) = entry.held.as_mut().filter(|held| held.claim.id() == claim.id()) {
            // Never back: this request may be an old one that comes late or twice.
            held.expires = held.expires.max(now.plus(claim.server_ttl()));
            return Answer::Granted(held.token);
        }
        if let Some((free_at, holder)) = entry.taken() {
            if let Some(wake) = wake {
                match entry.queue.iter_mut().find(|waiting| waiting.claim.id() == claim.id()) {
                    Some(waiting) => waiting.heard = now,
                    None => {
                        let (claim, wake) = (claim.detached(&self.nobody), Arc::clone(wake));
                        entry.queue.push_back(Waiting { claim, since: now, heard: now, wake });
                    }
                }
            }
            return Answer::Contended { expires_in: free_at.since(now), holder };
        }
        Answer::Granted(entry.grant(claim.detached(&self.nobody), &mut self.last_token, now))
    }

    fn grant(&mut self, claim: Claim, now: Moment) -> FencingToken {
        let entry = self.locks.entry(claim.name().clone()).or_default();
        entry.grant(claim, &mut self.last_token, now)
    }

    /// Frees what has expired, and hands what is free to the first in the queue.
    fn settle(&mut self, name: &LockName, now: Moment) {
        let Some(entry) = self.locks.get_mut(name) else { return };
        if let Some(held) = &entry.held {
            if held.expires > now {
                return;
            }
            self.voids.bury(held.claim.id(), held.claim.server_ttl(), now);
            entry.held = None;
        }
        if entry.closed_until.is_some_and(|end| end > now) {
            return;
        }
        entry.closed_until = None;
        while let Some(next) = entry.queue.pop_front() {
            if now.since(next.heard) < WAITER_LEASE {
                next.wake.notify_one();
                self.grant(next.claim, now);
                return;
            }
        }
        self.locks.remove(name);
    }

    pub(super) fn renew(&mut self, name: &LockName, id: ClaimId, ttl: Duration, now: Moment) -> bool {
        self.settle(name, now);
        match self.held_by(name, id) {
            Some(held) => {
                held.expires = held.expires.max(now.plus(ttl));
                true
            }
            None => false,
        }
    }

    /// Frees the lock if `claim` holds it; its id is dead in any case.
    pub(super) fn release(&mut self, claim: &Claim, now: Moment) -> bool {
        self.settle(claim.name(), now);
        if claim.is_unanswered() || self.copies {
            self.voids.bury(claim.id(), claim.server_ttl(), now);
        } else {
            self.voids.retire(claim.id());
        }
        let held = self.held_by(claim.name(), claim.id()).is_some();
        if held {
            self.free(claim.name(), now);
        }
        held
    }

    /// Undoes all that the claim's id has left or may yet leave.
    pub(super) fn abandon(&mut self, claim: &Claim, now: Moment) {
        self.settle(claim.name(), now);
        self.voids.bury(claim.id(), claim.server_ttl(), now);
        if let Some(entry) = self.locks.get_mut(claim.name()) {
            entry.queue.retain(|waiting| waiting.claim.id() != claim.id());
        }
        if self.held_by(claim.name(), claim.id()).is_some() {
            self.free(claim.name(), now);
        }
    }

    /// Ends the hold of `name` now; the next in the queue gets it. False if nobody held it.
    pub(super) fn expire(&mut self, name: &LockName, now: Moment) -> bool {
        self.settle(name, now);
        let Some(held) = self.locks.get(name).and_then(|entry| entry.held.as_ref()) else { return false };
        self.voids.bury(held.claim.id(), held.claim.server_ttl(), now);
        self.free(name, now);
        true
    }

    /// Ends the hold of `name` as an operator does: the holder has to hear of it
    /// first, so that the lock stays closed for the lock delay it asked for.
    /// With `only`, nothing but the hold that has this token.
    pub(super) fn force(&mut self, name: &LockName, only: Option<FencingToken>, now: Moment) -> bool {
        self.settle(name, now);
        let token = self.locks.get(name).and_then(|entry| entry.held.as_ref()).map(|held| held.token);
        if only.is_some_and(|only| token != Some(only)) {
            return false;
        }
        if let Some(entry) = self.locks.get_mut(name)
            && let Some(held) = &entry.held
            && !held.claim.lock_delay().is_zero()
        {
            entry.closed_until = Some(now.plus(held.claim.lock_delay()).min(held.expires));
        }
        self.expire(name, now)
    }

    /// Gives the lock to `thief`, past everyone in the queue.
    pub(super) fn steal(&mut self, thief: &Claim, now: Moment) -> FencingToken {
        if let Some(held) = self.locks.get_mut(thief.name()).and_then(|entry| entry.held.take()) {
            self.voids.bury(held.claim.id(), held.claim.server_ttl(), now);
        }
        self.grant(thief.clone(), now)
    }

    pub(super) fn inspect(&mut self, name: &LockName, now: Moment) -> Option<HolderInfo> {
        self.settle(name, now);
        let entry = self.locks.get(name)?;
        let waiting = entry.queue.iter().filter(|waiting| now.since(waiting.heard) < WAITER_LEASE);
        entry
            .held
            .as_ref()
            .map(|held| info(held, now).with_waiting(waiting.map(|waiting| waiter(waiting, now)).collect()))
    }

    pub(super) fn list(&mut self, prefix: &str, now: Moment) -> Vec<(LockName, HolderInfo)> {
        let names: Vec<_> = self.locks.keys().filter(|name| name.as_str().starts_with(prefix)).cloned().collect();
        names.into_iter().filter_map(|name| self.inspect(&name, now).map(|info| (name, info))).collect()
    }

    /// From now on every id that ends is remembered for as long as a copy may take.
    pub(super) fn expect_copies(&mut self) {
        self.copies = true;
    }

    /// How many names have a holder or a waiter.
    pub(super) fn len(&self) -> usize {
        self.locks.len()
    }

    fn held_by(&mut self, name: &LockName, id: ClaimId) -> Option<&mut Held> {
        self.locks.get_mut(name)?.held.as_mut().filter(|held| held.claim.id() == id)
    }

    fn free(&mut self, name: &LockName, now: Moment) {
        if let Some(entry) = self.locks.get_mut(name) {
            entry.held = None;
        }
        self.settle(name, now);
    }
}

impl Entry {
    /// Makes `claim` the holder, with the tokens that come next.
    fn grant(&mut self, claim: Claim, last_token: &mut u64, now: Moment) -> FencingToken {
        *last_token += 1 + u64::from(claim.reserve());
        let token = FencingToken::new(*last_token);
        let expires = now.plus(claim.server_ttl());
        self.held = Some(Held { claim, token, since: now, expires });
        self.closed_until = None;
        token
    }

    /// When others may have it at the earliest, and who has it until then.
    fn taken(&self) -> Option<(Moment, Option<Arc<str>>)> {
        match &self.held {
            Some(held) => Some((held.expires, Some(Arc::clone(held.claim.holder())))),
            None => self.closed_until.map(|end| (end, None)),
        }
    }
}

fn info(held: &Held, now: Moment) -> HolderInfo {
    HolderInfo::new(Arc::clone(held.claim.holder()), held.token)
        .with_note(held.claim.note().cloned())
        .with_remaining(held.expires.since(now))
        .with_held_for(now.since(held.since))
        .with_claim(held.claim.id())
}

fn waiter(waiting: &Waiting, now: Moment) -> Waiter {
    Waiter::new(Arc::clone(waiting.claim.holder()))
        .with_note(waiting.claim.note().cloned())
        .with_waited_for(now.since(waiting.since))
        .with_claim(waiting.claim.id())
}
