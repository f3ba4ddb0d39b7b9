//! The service: one lock, and one counter behind a gate.

use super::{Flaw, Message, TTL, World};
use std::collections::{BTreeMap, BTreeSet};

struct Held {
    id: u64,
    token: u64,
    expires: u64,
}

#[derive(Default)]
pub(crate) struct Server {
    held: Option<Held>,
    voids: BTreeSet<u64>,
    waiting: BTreeSet<usize>,
    last: u64,
    nodes: [u64; 3],
    drawn: BTreeMap<u64, u64>,
    newest: u64,
    pub(crate) value: u64,
}

impl Server {
    pub(crate) fn handle(&mut self, message: Message, world: &mut World) {
        // In a session that is kept alive nothing expires by itself.
        if self.held.as_ref().is_some_and(|held| held.expires <= world.now) && world.flaw != Flaw::UndoForgotten {
            self.free(world);
        }
        match message {
            Message::Acquire { client, id } => self.acquire(client, id, world),
            Message::Renew { client, id, sent } => {
                let ok = self.renew(id, world);
                world.send(Message::Renewed { client, id, sent, ok });
            }
            Message::Release { client, id } => {
                let ours = self.held.as_ref().is_some_and(|held| held.id == id);
                let ok = ours || world.flaw == Flaw::ReleaseWithoutOwnerCheck;
                if ok {
                    self.free(world);
                }
                world.send(Message::Released { client, id, ok });
            }
            Message::Undo { id } if world.flaw != Flaw::UndoForgotten => {
                self.voids.insert(id);
                if self.held.as_ref().is_some_and(|held| held.id == id) {
                    self.free(world);
                }
            }
            Message::Enter { client, id, token } => {
                let ok = token >= self.newest;
                if ok && world.flaw != Flaw::GateChecksTheWriteOnly {
                    self.newest = token;
                }
                world.send(Message::Entered { client, id, ok, value: self.value });
            }
            Message::Write { client, id, token, value } => {
                let ok = token >= self.newest || world.flaw == Flaw::GateForgetsTheNewest;
                if ok {
                    (self.newest, self.value) = (self.newest.max(token), value);
                }
                world.send(Message::Wrote { client, id, ok, value });
            }
            _ => {}
        }
    }

    fn acquire(&mut self, client: usize, id: u64, world: &mut World) {
        if self.voids.contains(&id) {
            return;
        }
        let token = match world.flaw {
            Flaw::TokenTakenOnFailedAcquire => {
                self.last += u64::from(!self.drawn.contains_key(&id));
                *self.drawn.entry(id).or_insert(self.last)
            }
            _ => self.last + 1,
        };
        match &mut self.held {
            Some(held) if held.id == id => {
                held.expires = held.expires.max(world.now + TTL);
                world.send(Message::Granted { client, id, token: held.token });
            }
            Some(_) => {
                self.waiting.insert(client);
                world.send(Message::Contended { client, id, token });
            }
            None => {
                let token = if world.flaw == Flaw::TokenIsMaximumOfNodes { self.of_a_majority(world) } else { token };
                self.last = self.last.max(token);
                self.waiting.remove(&client);
                self.held = Some(Held { id, token, expires: world.now + TTL });
                world.send(Message::Granted { client, id, token });
            }
        }
    }

    fn of_a_majority(&mut self, world: &mut World) -> u64 {
        let out = world.random.usize(0..3);
        let mut largest = 0;
        for (at, counter) in self.nodes.iter_mut().enumerate().filter(|(at, _)| *at != out) {
            *counter += 1;
            largest = largest.max(*counter);
            debug_assert!(at < 3);
        }
        largest
    }

    fn renew(&mut self, id: u64, world: &World) -> bool {
        // Two spans in which a follower is cut off from its leader.
        if world.flaw == Flaw::ValidityFromPings && world.now % 2_000 > 1_400 {
            return true;
        }
        match &mut self.held {
            Some(held) if held.id == id => {
                held.expires = held.expires.max(world.now + TTL);
                true
            }
            None if world.flaw == Flaw::RenewalRevives && !self.voids.contains(&id) => {
                self.last += 1;
                self.held = Some(Held { id, token: self.last, expires: world.now + TTL });
                true
            }
            _ => false,
        }
    }

    fn free(&mut self, world: &mut World) {
        self.held = None;
        let nobody_waits = self.waiting.is_empty();
        if world.flaw == Flaw::RowDeletedOnRelease || world.flaw == Flaw::SequenceNumberAsToken && nobody_waits {
            self.last = 0;
        }
        for client in std::mem::take(&mut self.waiting) {
            world.send(Message::Told { client });
        }
    }
}
