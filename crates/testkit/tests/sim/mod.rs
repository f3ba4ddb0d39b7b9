//! A lock service and its clients on a simulated clock and network, with ways to be wrong.
//!
//! Time is in milliseconds. Messages take a while, some long, and some are lost;
//! clients are paused at random. Everything follows from a seed.

mod client;
mod server;

use client::Client;
use fastrand::Rng;
use fencelock_testkit::history::{Event, What};
use server::Server;
use std::collections::BTreeMap;

pub(crate) const TTL: u64 = 100;
const CLIENTS: usize = 3;
const LASTS: u64 = 6_000;

/// Mistakes that lock libraries have made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    ReleaseWithoutOwnerCheck,
    DeadlineFromReceipt,
    ClockStopsInSuspend,
    /// Each grant raises the counters of a majority of nodes, and takes the largest.
    TokenIsMaximumOfNodes,
    TokenTakenOnFailedAcquire,
    RenewalRevives,
    NoReReadAfterTheWait,
    /// A follower that is cut off from its leader answers pings; the leader hears nothing.
    ValidityFromPings,
    /// Numbers begin anew when the parent was empty and is deleted.
    SequenceNumberAsToken,
    /// The counter is in the row, and the row goes with the release.
    RowDeletedOnRelease,
    /// In a session that is kept alive, what is not undone stays.
    UndoForgotten,
    GateChecksTheWriteOnly,
    GateForgetsTheNewest,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Message {
    Acquire {
        client: usize,
        id: u64,
    },
    Renew {
        client: usize,
        id: u64,
        sent: u64,
    },
    Release {
        client: usize,
        id: u64,
    },
    Undo {
        id: u64,
    },
    Enter {
        client: usize,
        id: u64,
        token: u64,
    },
    Write {
        client: usize,
        id: u64,
        token: u64,
        value: u64,
    },
    Granted {
        client: usize,
        id: u64,
        token: u64,
    },
    Contended {
        client: usize,
        id: u64,
        token: u64,
    },
    /// The lock was freed.
    Told {
        client: usize,
    },
    Renewed {
        client: usize,
        id: u64,
        sent: u64,
        ok: bool,
    },
    Released {
        client: usize,
        id: u64,
        ok: bool,
    },
    Entered {
        client: usize,
        id: u64,
        ok: bool,
        value: u64,
    },
    Wrote {
        client: usize,
        id: u64,
        ok: bool,
        value: u64,
    },
}

/// The network, the clock, and what is written down.
pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) random: Rng,
    pub(crate) flaw: Flaw,
    under_way: BTreeMap<u64, Vec<Message>>,
    events: Vec<Event>,
}

impl World {
    /// Sends, unless the network loses it.
    pub(crate) fn send(&mut self, message: Message) {
        let delay = match self.random.u8(0..100) {
            0 => return,
            1..6 => self.random.u64(30..150),
            _ => self.random.u64(1..5),
        };
        self.deliver_at(self.now + delay, message);
    }

    pub(crate) fn deliver_at(&mut self, at: u64, message: Message) {
        self.under_way.entry(at).or_default().push(message);
    }

    pub(crate) fn record(&mut self, client: usize, hold: u64, what: What) {
        // Later in the same millisecond is later.
        let at = self.now * 1_000_000 + self.events.len() as u64 % 1_000_000;
        let at = at.max(self.events.last().map_or(0, |last| last.at + 1));
        self.events.push(Event { at, worker: client as u32 + 1, hold: hold as u32, what });
    }
}

/// What a run with this seed writes down.
pub(crate) fn run(flaw: Flaw, seed: u64) -> Vec<Event> {
    let random = Rng::with_seed(seed);
    let mut world = World { now: 1, random, flaw, under_way: BTreeMap::new(), events: Vec::new() };
    let mut server = Server::default();
    let mut clients: Vec<_> = (0..CLIENTS).map(Client::new).collect();
    while world.now < LASTS {
        for message in world.under_way.remove(&world.now).unwrap_or_default() {
            let Some(client) = message.to() else {
                server.handle(message, &mut world);
                continue;
            };
            let client = &mut clients[client];
            if client.paused_until > world.now {
                let until = client.paused_until;
                world.deliver_at(until, message);
            } else {
                client.look(&mut world);
                client.handle(message, &mut world);
            }
        }
        for client in &mut clients {
            client.step(&mut world);
        }
        world.now += 1;
    }
    let value = server.value;
    world.record(CLIENTS, 0, What::FinalCount { resource: "counter".into(), value });
    world.events
}

impl Message {
    /// The client it is for, if it is for one.
    fn to(self) -> Option<usize> {
        match self {
            Self::Granted { client, .. }
            | Self::Contended { client, .. }
            | Self::Told { client }
            | Self::Renewed { client, .. }
            | Self::Released { client, .. }
            | Self::Entered { client, .. }
            | Self::Wrote { client, .. } => Some(client),
            _ => None,
        }
    }
}
